#include "engine/embedder.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

namespace tare::engine {
namespace {

// A request on its way. Its inputs do not change; `vectors` belong to the step thread, the rest is
// guarded by the embedder's mutex. Whoever takes it from the last queue it is in calls `done`.
struct Pending {
  std::uint64_t id = 0;
  std::vector<std::vector<TokenId>> inputs;
  Embedder::Done done;
  Nanos arrived{};
  std::size_t next = 0;      // the input that is planned next
  std::size_t computed = 0;  // inputs
  bool cancelled = false;
  std::vector<float> vectors;
};
using Queue = std::deque<std::shared_ptr<Pending>>;

struct Planned {
  std::shared_ptr<Pending> request;
  std::size_t input;
};

Status CheckInput(const std::vector<TokenId>& input, std::size_t index, int most, int vocab) {
  if (input.empty()) return FailParam("input", "input {} has no tokens", index);
  if (std::cmp_greater(input.size(), most)) {
    return FailParam("input", "input {} has {} tokens; this model takes at most {}", index,
                     input.size(), most);
  }
  for (const TokenId id : input) {
    if (ToInt(id) >= 0 && ToInt(id) < vocab) continue;
    return FailParam("input", "input {} has the token id {}; this model's go from 0 to {}", index,
                     ToInt(id), vocab - 1);
  }
  return {};
}

}  // namespace

class Embedder::Impl {
 public:
  Impl(EmbedderOptions options, std::unique_ptr<model::Encoder> encoder,
       std::shared_ptr<const model::Text> text)
      : options_(std::move(options)),
        clock_(OrSteady(options_.clock)),
        encoder_(std::move(encoder)),
        text_(std::move(text)),
        max_length_(options_.max_length > 0
                        ? std::min(options_.max_length, encoder_->config().context_length)
                        : encoder_->sentence().max_length) {}

  ~Impl() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void Start() {
    const Nanos begin = clock_->Now();
    // A full step, so that no request pays for memory touched the first time.
    const int rows = std::max(1, std::min(options_.max_step_tokens, max_length_));
    const auto inputs = static_cast<std::size_t>(std::max(1, options_.max_step_tokens / rows));
    const std::vector<int> lengths(inputs, rows);
    const std::vector<TokenId> tokens(inputs * static_cast<std::size_t>(rows), TokenId{0});
    std::vector<float> out(inputs * Dimension());
    encoder_->Forward(tokens, lengths, out);
    stats_.startup = options_.startup;
    stats_.startup.warm_kernels = clock_->Now() - begin;
    stats_.startup.total += stats_.startup.warm_kernels;
    thread_ = std::thread([this] { Run(); });
  }

  Result<Handle> Submit(EmbedRequest request, Done done) {
    if (request.inputs.empty()) return FailParam("input", "there is nothing to embed");
    for (std::size_t i = 0; i < request.inputs.size(); ++i) {
      TARE_RETURN_IF_ERROR(CheckInput(request.inputs[i], i, max_length_, encoder_->config().vocab));
    }
    auto pending = std::make_shared<Pending>();
    pending->inputs = std::move(request.inputs);
    pending->done = std::move(done);
    pending->arrived = clock_->Now();
    pending->vectors.resize(pending->inputs.size() * Dimension());
    std::lock_guard lock(mutex_);
    if (stats_.draining) return Fail(ErrorKind::kUnavailable, "the server is shutting down");
    if (unfinished_ >= options_.max_queued) {
      return Fail(ErrorKind::kUnavailable, "{} requests wait already; retry later", unfinished_);
    }
    pending->id = ++last_id_;
    ++unfinished_;
    ++stats_.requests_accepted;
    stats_.waiting_inputs += pending->inputs.size();
    (request.tier == Tier::kBatch ? batch_ : interactive_).push_back(pending);
    changed_.notify_all();
    return Handle{pending->id};
  }

  void Cancel(Handle handle) {
    std::shared_ptr<Pending> dropped;  // freed without the lock
    std::lock_guard lock(mutex_);
    const auto is = [&](const std::shared_ptr<Pending>& p) { return p->id == handle.id; };
    for (Queue* queue : {&interactive_, &batch_, &finished_, &dropped_}) {
      const auto found = std::find_if(queue->begin(), queue->end(), is);
      if (found == queue->end()) continue;
      dropped = *found;
      queue->erase(found);
    }
    const auto planned = std::find_if(step_.begin(), step_.end(),
                                      [&](const Planned& one) { return is(one.request); });
    if (planned != step_.end()) dropped = planned->request;
    if (dropped == nullptr || std::exchange(dropped->cancelled, true)) return;
    Forget(*dropped);
    ++stats_.requests_cancelled;
  }

  bool Drain(Nanos deadline) {
    std::unique_lock lock(mutex_);
    stats_.draining = true;
    const auto done = [this] { return unfinished_ == 0; };
    while (!done() && clock_->Now() < deadline) {
      // In slices, since the embedder's clock need not be the condition variable's.
      const Nanos left = std::min<Nanos>(deadline - clock_->Now(), std::chrono::milliseconds(20));
      changed_.wait_for(lock, left, done);
    }
    bool whole = true;
    for (Queue* queue : {&interactive_, &batch_}) {
      for (std::shared_ptr<Pending>& pending : *queue) {
        whole = false;
        pending->cancelled = true;
        Forget(*pending);
        ++stats_.requests_cancelled;
        dropped_.push_back(std::move(pending));
      }
      queue->clear();
    }
    while (!dropped_.empty()) {
      const std::shared_ptr<Pending> pending = std::move(dropped_.front());
      dropped_.pop_front();
      lock.unlock();
      pending->done(Fail(ErrorKind::kUnavailable, "the server is shutting down"));
      lock.lock();
    }
    changed_.wait(lock, done);  // for the step under way
    return whole;
  }

  EmbedderStats Stats() const {
    std::lock_guard lock(mutex_);
    EmbedderStats stats = stats_;
    stats.waiting_requests = unfinished_;
    return stats;
  }

  const model::Encoder& encoder() const { return *encoder_; }
  const std::shared_ptr<const model::Text>& text() const { return text_; }
  int max_length() const { return max_length_; }

 private:
  std::size_t Dimension() const { return static_cast<std::size_t>(encoder_->dimension()); }

  // A request that will not be answered, with the lock held.
  void Forget(const Pending& pending) {
    stats_.waiting_inputs -= pending.inputs.size() - pending.computed;
    --unfinished_;
    changed_.notify_all();
  }

  // Fills step_ with the lock held.
  void Plan() {
    step_.clear();
    const Nanos now = clock_->Now();
    std::erase_if(batch_, [&](const std::shared_ptr<Pending>& request) {
      if (now - request->arrived < options_.batch_tier_ageing) return false;
      interactive_.push_back(request);
      return true;
    });
    int rows = 0;
    for (Queue* queue : {&interactive_, &batch_}) {
      while (!queue->empty()) {
        const std::shared_ptr<Pending> request = queue->front();
        const auto length = static_cast<int>(request->inputs[request->next].size());
        if (rows > 0 && rows + length > options_.max_step_tokens) return;
        rows += length;
        step_.push_back({request, request->next++});
        queue->pop_front();
        if (request->next < request->inputs.size()) queue->push_back(request);
      }
    }
  }

  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !interactive_.empty() || !batch_.empty(); });
      if (stopping_) return;
      Plan();
      lock.unlock();
      const Nanos begin = clock_->Now();
      const std::size_t tokens = Compute();
      const double seconds = ToSeconds(clock_->Now() - begin);
      lock.lock();
      ++stats_.steps;
      stats_.step_seconds += seconds;
      stats_.tokens += tokens;
      stats_.inputs += step_.size();
      Book();
      step_.clear();
      while (!finished_.empty()) {
        std::shared_ptr<Pending> request = std::move(finished_.front());
        finished_.pop_front();
        lock.unlock();
        request->done(std::move(request->vectors));
        request.reset();
        lock.lock();
        ++stats_.requests_finished;
        --unfinished_;  // only now: Drain waits for the answers
      }
      changed_.notify_all();
    }
  }

  // Computes step_ and puts the vectors where they belong; returns the number of tokens. step_ is
  // only changed by this thread.
  std::size_t Compute() {
    tokens_.clear();
    lengths_.clear();
    for (const Planned& one : step_) {
      const std::vector<TokenId>& input = one.request->inputs[one.input];
      tokens_.insert(tokens_.end(), input.begin(), input.end());
      lengths_.push_back(static_cast<int>(input.size()));
    }
    vectors_.resize(step_.size() * Dimension());
    encoder_->Forward(tokens_, lengths_, vectors_);
    for (std::size_t i = 0; i < step_.size(); ++i) {
      const auto from = vectors_.begin() + static_cast<std::ptrdiff_t>(i * Dimension());
      std::copy_n(from, Dimension(),
                  step_[i].request->vectors.begin() +
                      static_cast<std::ptrdiff_t>(step_[i].input * Dimension()));
    }
    return tokens_.size();
  }

  // Counts what the step computed, with the lock held; requests that are complete go to finished_.
  void Book() {
    for (const Planned& one : step_) {
      Pending& request = *one.request;
      if (request.cancelled) continue;
      --stats_.waiting_inputs;
      if (++request.computed < request.inputs.size()) continue;
      finished_.push_back(one.request);
    }
  }

  const EmbedderOptions options_;
  const Clock* const clock_;
  const std::unique_ptr<model::Encoder> encoder_;
  const std::shared_ptr<const model::Text> text_;
  const int max_length_;
  std::vector<TokenId> tokens_;  // scratch of the step thread, as the next two
  std::vector<int> lengths_;
  std::vector<float> vectors_;

  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  Queue interactive_, batch_;  // requests with inputs not planned yet
  std::vector<Planned> step_;  // under way
  Queue finished_, dropped_;   // to be told so, by the step thread and by Drain
  std::uint64_t last_id_ = 0;
  int unfinished_ = 0;
  bool stopping_ = false;
  EmbedderStats stats_;
  std::thread thread_;  // last
};

Embedder::Embedder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Embedder::~Embedder() = default;

Result<std::unique_ptr<Embedder>> Embedder::Start(EmbedderOptions options,
                                                  std::unique_ptr<model::Encoder> encoder,
                                                  std::shared_ptr<const model::Text> text) {
  if (options.max_length > encoder->config().context_length) {
    return FailParam("max-model-len", "this model has positions for {} tokens, not for {}",
                     encoder->config().context_length, options.max_length);
  }
  auto impl = std::make_unique<Impl>(std::move(options), std::move(encoder), std::move(text));
  impl->Start();
  return std::unique_ptr<Embedder>(new Embedder(std::move(impl)));
}

Result<Embedder::Handle> Embedder::Submit(EmbedRequest request, Done done) {
  return impl_->Submit(std::move(request), std::move(done));
}
void Embedder::Cancel(Handle handle) { impl_->Cancel(handle); }
bool Embedder::Drain(Nanos deadline) { return impl_->Drain(deadline); }

Result<std::vector<TokenId>> Embedder::Encode(std::string_view text) const {
  return impl_->text()->tokenizer().Encode(text);
}

void Embedder::Truncate(std::vector<TokenId>& tokens, int most) const {
  if (most < 1 || std::cmp_less_equal(tokens.size(), most)) return;
  const TokenId last = tokens.back();
  tokens.resize(static_cast<std::size_t>(most));
  if (impl_->text()->tokenizer().IsSpecial(last)) tokens.back() = last;
}

Result<std::vector<float>> Embedder::Embed(std::span<const std::string> texts) {
  EmbedRequest request;
  for (const std::string& text : texts) {
    TARE_TRY(std::vector<TokenId> tokens, Encode(text));
    request.inputs.push_back(std::move(tokens));
  }
  auto result = std::make_shared<std::promise<Result<std::vector<float>>>>();
  auto future = result->get_future();
  TARE_RETURN_IF_ERROR(Submit(std::move(request), [result](Result<std::vector<float>> vectors) {
    result->set_value(std::move(vectors));
  }));
  return future.get();
}

EmbedderStats Embedder::Stats() const { return impl_->Stats(); }
const model::Encoder& Embedder::encoder() const { return impl_->encoder(); }
const std::shared_ptr<const model::Text>& Embedder::text() const { return impl_->text(); }
int Embedder::max_length() const { return impl_->max_length(); }

}  // namespace tare::engine
