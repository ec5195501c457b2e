#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "engine/active_request.h"
#include "engine/cpu_executor.h"
#include "engine/page_key.h"
#include "engine/request_check.h"
#include "engine/scheduler.h"
#include "engine/upkeep_pace.h"
#include "model/lora_adapter.h"

namespace tare::engine {
namespace {

// Slabs of about this size: large enough for the system's huge pages, small enough to empty.
constexpr std::size_t kSlabBytes = std::size_t{8} << 20;
// Tokens the engine keeps room for per sequence when not told how much KV memory to use.
constexpr std::uint64_t kDefaultTokensPerSequence = 2048;
struct Submission {
  std::uint64_t id = 0;
  GenerateRequest request;
  std::shared_ptr<GenerateSink> sink;
  PageKey root;
  std::vector<PageKey> keys;
  std::uint64_t seed = 0;
  Nanos submitted{};
};

std::uint32_t PagesFor(std::uint64_t tokens) {
  return static_cast<std::uint32_t>((tokens + kernels::kTokensPerPage - 1) /
                                    kernels::kTokensPerPage);
}

std::uint64_t SystemSeed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

class Engine::Impl {
 public:
  Impl(EngineOptions options, std::unique_ptr<model::LanguageModel> model,
       std::shared_ptr<const model::Text> text)
      : options_(std::move(options)),
        clock_(OrSteady(options_.clock)),
        model_(std::move(model)),
        text_(std::move(text)),
        seeds_(options_.seed != 0 ? options_.seed : SystemSeed()) {}

  ~Impl() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(inbox_mutex_);
      inbox_.stop = true;
    }
    inbox_changed_.notify_one();
    thread_.join();
  }

  Status Start();
  Result<RequestHandle> Submit(GenerateRequest request, std::shared_ptr<GenerateSink> sink);
  void Cancel(RequestHandle handle);
  bool Drain(Nanos deadline);
  EngineStats Stats() const;

  const model::ModelConfig& config() const { return model_->config(); }
  const std::shared_ptr<const model::Text>& text() const { return text_; }
  int max_model_len() const { return limits_.max_model_len; }

 private:
  struct Inbox {
    std::vector<Submission> submissions;
    std::vector<std::uint64_t> cancels;
    bool cancel_all = false;
    bool stop = false;

    bool empty() const { return submissions.empty() && cancels.empty() && !cancel_all && !stop; }
  };
  struct Route {
    ActiveRequest* request = nullptr;
    int choice = 0;
  };
  struct Sampling {
    std::uint64_t sequence = 0;
    Route route;
    std::size_t row = 0;  // of the step's logits
    std::span<const TokenId> drafts;
    bool ok = true;
  };

  // The rest runs on the step thread.
  void Loop();
  // Waits for a message, or until the scheduler may have something to do. False: stop.
  bool TakeInbox(bool wait);
  void Accept(Submission submission);
  void CancelRequest(std::uint64_t id);
  void CancelAll();
  // Plans and runs one step. False when there was nothing to do.
  bool Step();
  void Expire();
  void SampleAndDeliver(const StepPlan& plan, const StepResult& result);
  void FailSequences(const StepPlan& plan, const Error& error);
  // Takes a request out; its terminal call has been made or is made here.
  void Close(ActiveRequest& request);
  void CancelSequences(const ActiveRequest& request);
  void Publish(const StepResult* result);

  EngineOptions options_;
  const Clock* clock_;
  std::unique_ptr<model::LanguageModel> model_;
  std::shared_ptr<const model::Text> text_;
  RequestLimits limits_;
  std::uint32_t pages_ = 0;
  std::unique_ptr<CpuExecutor> executor_;
  std::optional<Scheduler> scheduler_;

  std::atomic<std::uint64_t> next_request_{1};
  std::atomic<int> open_requests_{0};
  std::atomic<bool> draining_{false};

  std::mutex inbox_mutex_;  // guards inbox_ and seeds_; held only to move messages
  std::condition_variable inbox_changed_;
  std::condition_variable request_closed_;
  Inbox inbox_;
  std::mt19937_64 seeds_;

  mutable std::mutex stats_mutex_;  // guards stats_
  EngineStats stats_;

  // Step thread only.
  std::map<std::uint64_t, std::unique_ptr<ActiveRequest>> requests_;
  std::unordered_map<std::uint64_t, Route> routes_;  // by sequence id
  std::uint64_t next_sequence_ = 1;
  std::vector<Sampling> sampling_;
  UpkeepPace upkeep_;
  EngineStats counts_;  // what the step thread counts itself
  int closed_ = 0;      // requests ended since the figures were last published
  std::thread thread_;
};

Status Engine::Impl::Start() {
  const model::ModelConfig& config = model_->config();
  limits_.vocab = config.vocab;
  limits_.has_text = text_ != nullptr;
  limits_.policy = options_.context_policy;
  limits_.max_model_len =
      options_.max_model_len > 0 ? options_.max_model_len : config.context_length;
  if (limits_.max_model_len > config.context_length) {
    return FailParam("max_model_len",
                     "max_model_len is {}, but the model was trained for {} tokens: give at most "
                     "that",
                     limits_.max_model_len, config.context_length);
  }
  const std::size_t page_bytes = PageBytes(model_->kv_shape(options_.kv_type));
  const std::uint32_t least = PagesFor(static_cast<std::uint64_t>(limits_.max_model_len));
  if (options_.kv_memory_bytes > 0) {
    const std::size_t pages = options_.kv_memory_bytes / page_bytes;
    pages_ = static_cast<std::uint32_t>(
        std::min<std::size_t>(pages, std::numeric_limits<std::uint32_t>::max() / 2));
  } else {
    const auto sequences = static_cast<std::uint64_t>(std::max(options_.max_num_seqs, 1));
    pages_ = std::max(least, PagesFor(sequences * kDefaultTokensPerSequence));
  }

  SchedulerOptions scheduling;
  scheduling.pool.pages = pages_;
  scheduling.pool.pages_per_slab =
      static_cast<std::uint32_t>(std::clamp<std::size_t>(kSlabBytes / page_bytes, 1, 64));
  // The slabs touched now stay: a step of the largest size and some room to decode.
  const std::uint32_t touched =
      std::min(pages_, PagesFor(static_cast<std::uint64_t>(options_.max_num_batched_tokens)) +
                           2 * static_cast<std::uint32_t>(std::max(options_.max_num_seqs, 1)));
  scheduling.pool.reserve_slabs = touched / scheduling.pool.pages_per_slab + 1;
  scheduling.max_num_seqs = options_.max_num_seqs;
  scheduling.max_num_batched_tokens = options_.max_num_batched_tokens;
  scheduling.prefill_chunk = options_.prefill_chunk;
  scheduling.max_model_len = limits_.max_model_len;
  scheduling.prefix_cache = options_.prefix_cache;
  scheduling.ring = options_.context_policy == ContextPolicy::kRing;
  scheduling.speculation = options_.speculation;
  scheduling.batch_window_requests = options_.batch_window_requests;
  scheduling.batch_window = options_.batch_window;
  scheduling.batch_tier_ageing = options_.batch_tier_ageing;
  TARE_TRY(scheduler_, Scheduler::Create(scheduling));
  TARE_TRY(executor_, CpuExecutor::Create(*model_, options_.kv_type, pages_, *clock_));

  const CpuExecutor::WarmUpTimes warm =
      executor_->WarmUp(touched, std::min(options_.max_num_batched_tokens, 64));
  upkeep_ = UpkeepPace(warm.copy_page, warm.return_page);
  scheduler_->SetUpkeepLimits(upkeep_.Limits());
  options_.startup.touch_pages = warm.touch_pages;
  options_.startup.touched_kv_bytes = warm.touched_bytes;
  options_.startup.huge_kv_bytes = warm.huge_bytes;
  options_.startup.warm_kernels = warm.warm_kernels;
  options_.startup.total += warm.touch_pages + warm.warm_kernels;
  counts_.pages_total = pages_;
  counts_.page_bytes = page_bytes;
  counts_.startup = options_.startup;
  stats_ = counts_;
  LogInfo(
      "engine: {} sequences, {} tokens a step, {} pages of KV ({} tokens, {} MiB), {} of {} MiB "
      "touched in huge pages",
      options_.max_num_seqs, options_.max_num_batched_tokens, pages_,
      std::uint64_t{pages_} * kernels::kTokensPerPage, (page_bytes * pages_) >> 20,
      warm.huge_bytes >> 20, warm.touched_bytes >> 20);
  thread_ = std::thread([this] { Loop(); });
  return {};
}

Result<RequestHandle> Engine::Impl::Submit(GenerateRequest request,
                                           std::shared_ptr<GenerateSink> sink) {
  TARE_CHECK(sink != nullptr);
  TARE_RETURN_IF_ERROR(CheckRequest(request, limits_));
  Submission submission;
  submission.submitted = clock_->Now();
  if (options_.prefix_cache && request.use_prefix_cache) {
    submission.root = RootKey(request.cache_salt, request.adapter ? request.adapter->id() : 0);
    ExtendKeys(submission.root, request.prompt, submission.keys);
  }
  submission.request = std::move(request);
  submission.sink = std::move(sink);
  submission.id = next_request_.fetch_add(1, std::memory_order_relaxed);
  const RequestHandle handle{submission.id};
  {
    std::lock_guard lock(inbox_mutex_);
    if (draining_ || inbox_.stop) {
      return Fail(ErrorKind::kUnavailable, "the engine is shutting down and takes no new requests");
    }
    if (open_requests_.load(std::memory_order_relaxed) >=
        options_.max_queued + options_.max_num_seqs) {
      return Fail(ErrorKind::kUnavailable,
                  "{} requests are waiting, which is the limit (max_queued): try again later",
                  options_.max_queued);
    }
    open_requests_.fetch_add(1, std::memory_order_relaxed);
    submission.seed = submission.request.seed ? *submission.request.seed : seeds_();
    inbox_.submissions.push_back(std::move(submission));
  }
  inbox_changed_.notify_one();
  return handle;
}

void Engine::Impl::Cancel(RequestHandle handle) {
  {
    std::lock_guard lock(inbox_mutex_);
    inbox_.cancels.push_back(handle.id);
  }
  inbox_changed_.notify_one();
}

bool Engine::Impl::Drain(Nanos deadline) {
  std::unique_lock lock(inbox_mutex_);
  draining_ = true;
  const auto done = [this] { return open_requests_.load(std::memory_order_relaxed) == 0; };
  while (!done() && clock_->Now() < deadline) {
    // In slices, since the engine's clock need not be the condition variable's.
    const Nanos left = std::min<Nanos>(deadline - clock_->Now(), std::chrono::milliseconds(20));
    request_closed_.wait_for(lock, left, done);
  }
  if (done()) return true;
  inbox_.cancel_all = true;
  inbox_changed_.notify_one();
  request_closed_.wait(lock, done);
  return false;
}

EngineStats Engine::Impl::Stats() const {
  std::lock_guard lock(stats_mutex_);
  EngineStats stats = stats_;
  stats.draining = draining_;
  return stats;
}

void Engine::Impl::Loop() {
  bool worked = true;
  while (TakeInbox(!worked)) worked = Step();
  CancelAll();
  Publish(nullptr);
}

bool Engine::Impl::TakeInbox(bool wait) {
  Inbox taken;
  {
    std::unique_lock lock(inbox_mutex_);
    const auto some = [this] { return !inbox_.empty(); };
    if (wait && inbox_.empty()) {
      if (const std::optional<Nanos> wake = scheduler_->WakeAt()) {
        inbox_changed_.wait_for(lock, std::max(*wake - clock_->Now(), Nanos{}), some);
      } else {
        inbox_changed_.wait(lock, some);
      }
    }
    // Taken also when stopping: requests not looked at yet get their terminal call.
    taken.submissions.swap(inbox_.submissions);
    taken.cancels.swap(inbox_.cancels);
    taken.cancel_all = std::exchange(inbox_.cancel_all, false);
    taken.stop = inbox_.stop;
  }
  for (Submission& submission : taken.submissions) Accept(std::move(submission));
  for (const std::uint64_t id : taken.cancels) CancelRequest(id);
  if (taken.cancel_all) CancelAll();
  return !taken.stop;
}

void Engine::Impl::Accept(Submission submission) {
  const std::uint64_t id = submission.id;
  GenerateRequest& request = submission.request;
  const int room = std::numeric_limits<int>::max() / 2;
  SequenceSpec spec;
  spec.prompt = request.prompt;
  spec.max_new_tokens = request.max_new_tokens.value_or(room);
  spec.pinned_tokens = request.pinned_tokens;
  spec.tier = request.tier;
  spec.deadline = request.deadline;
  spec.root = submission.root;
  spec.keys = submission.keys;
  spec.use_prefix_cache = request.use_prefix_cache;
  spec.speculate = request.speculate;
  spec.adapter = request.adapter.get();  // which `active` keeps

  auto active = std::make_unique<ActiveRequest>(id, std::move(request), std::move(submission.sink),
                                                text_.get(), submission.seed, submission.submitted);
  ++counts_.requests_accepted;
  counts_.prompt_tokens += spec.prompt.size();
  ActiveRequest& entry = *requests_.emplace(id, std::move(active)).first->second;
  for (int choice = 0; choice < entry.choices(); ++choice) {
    SequenceSpec own = spec;
    own.id = SequenceId{next_sequence_++};
    if (choice > 0) own.leader = entry.sequence(0);
    entry.SetSequence(choice, own.id);
    routes_[ToInt(own.id)] = {&entry, choice};
    if (Status status = scheduler_->Submit(std::move(own), submission.submitted); !status) {
      // CheckRequest refuses all the scheduler does, so this is a difference between the two.
      CancelSequences(entry);
      entry.FinishError(std::move(status).error());
      ++counts_.requests_failed;
      Close(entry);
      return;
    }
  }
}

void Engine::Impl::CancelSequences(const ActiveRequest& request) {
  for (int choice = 0; choice < request.choices(); ++choice) {
    if (!request.ended(choice)) scheduler_->Cancel(request.sequence(choice));
  }
}

void Engine::Impl::Close(ActiveRequest& request) {
  for (int choice = 0; choice < request.choices(); ++choice) {
    routes_.erase(ToInt(request.sequence(choice)));
  }
  requests_.erase(request.id());
  ++closed_;
}

void Engine::Impl::CancelRequest(std::uint64_t id) {
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  CancelSequences(*it->second);
  it->second->FinishCancelled(clock_->Now());
  ++counts_.requests_cancelled;
  Close(*it->second);
}

void Engine::Impl::CancelAll() {
  while (!requests_.empty()) CancelRequest(requests_.begin()->first);
}

void Engine::Impl::Expire() {
  for (const SequenceId sequence : scheduler_->TakeExpired()) {
    const auto it = routes_.find(ToInt(sequence));
    if (it == routes_.end()) continue;  // another choice of the request came first
    ActiveRequest& request = *it->second.request;
    CancelSequences(request);
    request.FinishError(Error{ErrorKind::kDeadlineExceeded,
                              "the request's deadline passed before its answer was complete: allow "
                              "more time, ask for fewer tokens, or lower the load",
                              std::string()});
    ++counts_.requests_failed;
    Close(request);
  }
}

bool Engine::Impl::Step() {
  const Nanos now = clock_->Now();
  const StepPlan plan = scheduler_->Plan(now);
  Expire();
  if (plan.empty()) {
    scheduler_->Commit(plan, {});
    Publish(nullptr);
    return false;
  }
  for (const PlannedSlice& slice : plan.slices) {
    const Route route = routes_.at(ToInt(slice.sequence));
    route.request->NoteComputing(now, scheduler_->CachedTokens(slice.sequence));
  }
  Result<StepResult> result = [&]() -> Result<StepResult> {
    try {
      return executor_->Run(plan);
    } catch (const std::exception& error) {
      return Fail(ErrorKind::kInternal, "the step failed: {}", error.what());
    }
  }();
  if (!result) {
    LogError("engine: {}", result.error().message);
    FailSequences(plan, result.error());
    Publish(nullptr);
    return true;
  }
  upkeep_.Note(plan, *result);
  scheduler_->SetUpkeepLimits(upkeep_.Limits());
  scheduler_->NoteStepTime(plan, result->elapsed - result->copying - result->returning);
  SampleAndDeliver(plan, *result);
  Publish(&*result);
  return true;
}

void Engine::Impl::FailSequences(const StepPlan& plan, const Error& error) {
  for (const PlannedSlice& slice : plan.slices) {
    const auto it = routes_.find(ToInt(slice.sequence));
    if (it == routes_.end()) continue;
    ActiveRequest& request = *it->second.request;
    CancelSequences(request);
    request.FinishError(error);
    ++counts_.requests_failed;
    Close(request);
  }
  std::size_t rows = 0;
  for (const PlannedSlice& slice : plan.slices) rows += slice.logit_rows();
  scheduler_->Commit(plan, std::vector<SampledToken>(rows));
}

void Engine::Impl::SampleAndDeliver(const StepPlan& plan, const StepResult& result) {
  sampling_.clear();
  std::size_t rows = 0;
  for (const PlannedSlice& slice : plan.slices) {
    if (!slice.wants_logits) continue;
    const std::uint64_t sequence = ToInt(slice.sequence);
    const auto drafts =
        std::span(plan.tokens)
            .subspan(slice.first_token + slice.num_tokens - slice.num_drafts, slice.num_drafts);
    sampling_.push_back({sequence, routes_.at(sequence), rows, drafts, true});
    rows += slice.logit_rows();
  }
  const std::size_t vocab = result.vocab;
  const auto sample = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      Sampling& s = sampling_[i];
      s.ok = s.route.request->PickAll(
          s.route.choice, result.logits.subspan(s.row * vocab, (1 + s.drafts.size()) * vocab),
          s.drafts);
    }
  };
  if (options_.pool != nullptr) {
    options_.pool->ParallelFor(sampling_.size(), 1, sample);
  } else {
    sample(0, sampling_.size());
  }

  std::vector<SampledToken> sampled(rows);
  for (const Sampling& s : sampling_) {
    if (s.ok) {
      const auto picked = s.route.request->Picked(s.route.choice);
      std::copy(picked.begin(), picked.end(), sampled.begin() + static_cast<std::ptrdiff_t>(s.row));
    } else {
      sampled[s.row] = {{}, true};
    }
  }
  std::unordered_map<std::uint64_t, FinishReason> ended;
  for (const EndedSequence& end : scheduler_->Commit(plan, sampled)) {
    ended[ToInt(end.id)] = end.reason;
  }

  const Nanos now = clock_->Now();
  for (const Sampling& s : sampling_) {
    ActiveRequest& request = *s.route.request;
    if (request.ended()) continue;  // failed with an earlier choice of this step
    if (!s.ok) {
      CancelSequences(request);
      request.FinishError(Error{ErrorKind::kInternal,
                                "the model's logits are not numbers: its weights may be damaged; "
                                "download the checkpoint again",
                                std::string()});
      ++counts_.requests_failed;
      continue;
    }
    const auto it = ended.find(s.sequence);
    counts_.generated_tokens += request.Picked(s.route.choice).size();
    request.Deliver(s.route.choice, it == ended.end() ? FinishReason::kNone : it->second, now);
    if (request.ended()) {
      request.FinishDone(now);
      ++counts_.requests_finished;
    }
  }
  // Only now, since several choices of a request may be in one step.
  for (const Sampling& s : sampling_) {
    const auto it = routes_.find(s.sequence);
    if (it != routes_.end() && it->second.request->ended()) Close(*it->second.request);
  }
}

void Engine::Impl::Publish(const StepResult* result) {
  const SchedulerStats scheduling = scheduler_->Stats();
  EngineStats& s = counts_;
  s.running = scheduling.running;
  s.waiting = scheduling.waiting;
  s.pages_used = scheduling.pages_used;
  s.pages_cached = scheduling.pages_cached;
  s.unused_slot_share = scheduling.unused_slot_share;
  s.stranded_share = scheduling.stranded_share;
  s.prefix_queries = scheduling.prefix_queries;
  s.prefix_hits = scheduling.prefix_hits;
  s.computed_tokens = scheduling.computed_tokens;
  s.preemptions = scheduling.preemptions;
  s.pages_copied = scheduling.pages_copied;
  s.pages_moved = scheduling.pages_moved;
  s.pages_returned = scheduling.pages_returned;
  s.pages_recycled = scheduling.pages_recycled;
  s.draft_turns = scheduling.draft_turns;
  s.drafted_tokens = scheduling.drafted_tokens;
  s.accepted_drafts = scheduling.accepted_drafts;
  if (result != nullptr) {
    const double seconds = ToSeconds(result->elapsed);
    ++s.steps;
    s.step_seconds += seconds;
    const double upkeep = ToSeconds(result->copying + result->returning);
    s.upkeep_seconds += upkeep;
    s.longest_upkeep_seconds = std::max(s.longest_upkeep_seconds, upkeep);
    const auto bucket =
        std::lower_bound(kStepSecondsBounds.begin(), kStepSecondsBounds.end(), seconds);
    if (const model::ExpertUse* use = model_->expert_use()) s.experts = Summarize(*use);
    ++s.step_seconds_histogram[static_cast<std::size_t>(bucket - kStepSecondsBounds.begin())];
  }
  {
    std::lock_guard lock(stats_mutex_);
    stats_ = s;
  }
  if (closed_ == 0) return;
  {
    // Under the mutex so that a Drain between its test and its wait does not miss the last one;
    // after the figures, so that a Drain that has returned finds them final.
    std::lock_guard lock(inbox_mutex_);
    open_requests_.fetch_sub(std::exchange(closed_, 0), std::memory_order_relaxed);
  }
  request_closed_.notify_all();
}

Result<std::unique_ptr<Engine>> Engine::Start(EngineOptions options,
                                              std::unique_ptr<model::LanguageModel> model,
                                              std::shared_ptr<const model::Text> text) {
  TARE_CHECK(model != nullptr);
  auto impl = std::make_unique<Impl>(std::move(options), std::move(model), std::move(text));
  TARE_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<RequestHandle> Engine::Submit(GenerateRequest request, std::shared_ptr<GenerateSink> sink) {
  return impl_->Submit(std::move(request), std::move(sink));
}
void Engine::Cancel(RequestHandle handle) { impl_->Cancel(handle); }
bool Engine::Drain(Nanos deadline) { return impl_->Drain(deadline); }
EngineStats Engine::Stats() const { return impl_->Stats(); }
const model::ModelConfig& Engine::config() const { return impl_->config(); }
const std::shared_ptr<const model::Text>& Engine::text() const { return impl_->text(); }
int Engine::max_model_len() const { return impl_->max_model_len(); }

}  // namespace tare::engine
