#include "load/generator.h"

#include <algorithm>
#include <ctime>
#include <set>
#include <thread>
#include <unordered_map>

#include "load/arrivals.h"
#include "load/chunk.h"
#include "load/random.h"
#include "net/sse_parser.h"

namespace tare::load {
namespace {

constexpr std::size_t kMostBody = 64 << 20;   // bytes kept of an answer that is not a stream
constexpr std::size_t kMostErrorSamples = 5;  // per thread
constexpr std::size_t kErrorSampleBytes = 300;

double ThreadCpuSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

RequestError FromClient(net::ClientFailureKind kind) {
  switch (kind) {
    case net::ClientFailureKind::kResolve:
      return RequestError::kResolve;
    case net::ClientFailureKind::kConnectRefused:
      return RequestError::kConnectRefused;
    case net::ClientFailureKind::kConnectTimeout:
      return RequestError::kConnectTimeout;
    case net::ClientFailureKind::kConnectFailed:
      return RequestError::kConnectFailed;
    case net::ClientFailureKind::kTls:
      return RequestError::kTls;
    case net::ClientFailureKind::kReset:
      return RequestError::kReset;
    case net::ClientFailureKind::kClosedEarly:
      return RequestError::kClosedEarly;
    case net::ClientFailureKind::kFirstByteTimeout:
      return RequestError::kFirstByteTimeout;
    case net::ClientFailureKind::kIdleTimeout:
      return RequestError::kIdleTimeout;
    case net::ClientFailureKind::kTotalTimeout:
      return RequestError::kTotalTimeout;
    case net::ClientFailureKind::kBadResponse:
      return RequestError::kBadResponse;
  }
  return RequestError::kBadResponse;
}

class Worker;

// A conversation under way.
struct Session {
  std::uint64_t number = 0;
  int turn = 0;  // the next one, or the one in flight
  int turns = 1;
  int user = -1;           // of the closed loop
  int reserved = 0;        // later turns already taken from a set number of requests
  std::string history;     // the messages so far, JSON objects with commas between
  std::string question;    // of the turn in flight, as a JSON string
  std::uint32_t seen = 0;  // tokens of the last prompt and its answer, told by the server
};

// One request from its intended time to its end.
class Exchange final : public net::ClientHandler, private net::SseSink {
 public:
  // `session` null: a request of its own.
  Exchange(Worker* worker, RequestRecord record, int user, std::shared_ptr<Session> session)
      : record_(record), worker_(worker), user_(user), session_(std::move(session)) {}

  void OnHead(const net::HttpResponseHead& head, const net::ClientTimes& times) override;
  void OnBody(std::string_view piece, Nanos received) override;
  void OnDone(const net::ClientTimes& times) override;
  void OnFailure(const net::ClientFailure& failure, const net::ClientTimes& times) override;

  void Abandon(RequestError error);  // ends it from our side
  int user() const { return user_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  const std::string& answer() const { return answer_; }
  net::HttpClient::CallId call{};

 private:
  void OnEvent(const net::SseEvent& event) override;
  void OnComment(std::string_view) override { ++record_.other_chunks; }
  void Take(const ChunkFacts& facts);
  void CopyTimes(const net::ClientTimes& times);
  void Fail(RequestError error, std::string message);

  RequestRecord record_;
  Worker* worker_;
  int user_;
  std::shared_ptr<Session> session_;
  net::SseParser sse_;
  std::string body_;
  std::string answer_;  // its text, when a session goes on from it
  std::string message_;
  Nanos received_{0};
  bool stream_ = false;
  bool finished_ = false;  // finish_reason or [DONE]
};

// What the workers read, and the counters they share.
struct Shared {
  RunPlan plan;
  RequestShape shape;
  GeneratorCounters counters;
  std::atomic<bool> stop{false};
  std::atomic<int> still_issuing{0};  // workers
};

class Worker {
 public:
  Worker(Shared* shared, int number, std::unique_ptr<net::EventLoop> loop,
         std::unique_ptr<net::HttpClient> client)
      : shared_(shared),
        number_(number),
        loop_(std::move(loop)),
        client_(std::move(client)),
        recorder_(shared->plan.start, shared->plan.window_begin, shared->plan.window_end) {}

  void Start() {
    if (plan().chunks != nullptr) chunks_ = plan().chunks->NewLane();
    reader_.ReadStamps(shared_->plan.read_stamps);
    reader_.KeepText(shared_->plan.sessions);
    thread_ = std::thread([this] {
      cpu_at_start_ = ThreadCpuSeconds();
      wall_at_start_ = net::MonotonicNow();
      if (shared_->plan.arrival.kind == ArrivalSpec::Kind::kClosed) {
        StartUsers();
      } else {
        StartSchedule();
      }
      loop_->Run();
      client_.reset();
    });
  }

  void Finish() {
    loop_->Post([this] {
      NoMore();
      // Ending one may erase it: take the list first.
      std::vector<std::shared_ptr<Exchange>> open;
      for (const auto& [pointer, exchange] : open_) open.push_back(exchange);
      finishing_ = true;
      for (const auto& exchange : open) exchange->Abandon(RequestError::kUnfinished);
      measurement_.loop = loop_->self();
      measurement_.receive_lag = client_->receive_lag();
      loop_->Stop();
    });
    thread_.join();
  }

  Recorder& recorder() { return recorder_; }
  const ThreadMeasurement& measurement() const { return measurement_; }
  ChunkReader& reader() { return reader_; }
  net::HttpClient& client() { return *client_; }
  GeneratorCounters& counters() { return shared_->counters; }
  const std::set<std::string>& error_samples() const { return error_samples_; }
  void KeepChunk(const RequestRecord& record, Nanos at, int tokens) {
    if (chunks_ != nullptr) chunks_->Add(record.index, record.turn, at - plan().start, tokens);
  }

  void Ended(Exchange* exchange, RequestRecord record, const std::string& message) {
    if (record.end == Nanos(0)) record.end = net::MonotonicNow();
    record.thread = static_cast<std::uint16_t>(lane());
    recorder_.Ended(record);
    counters().in_flight.fetch_sub(1, std::memory_order_relaxed);
    (record.ok() ? counters().ok : counters().failed).fetch_add(1, std::memory_order_relaxed);
    if (!message.empty() && error_samples_.size() < kMostErrorSamples) {
      error_samples_.insert(message.substr(0, kErrorSampleBytes));
    }
    const int user = exchange->user();
    const std::shared_ptr<Session> session = exchange->session();
    const bool goes_on = session != nullptr && Continues(*session, record, exchange->answer());
    open_.erase(exchange);
    if (finishing_) return;
    const Nanos think = ThinkTime(record);
    if (goes_on) {
      At(record.end + think, [this, session](Nanos at) { NextTurn(session, at); });
      return;
    }
    if (session != nullptr) {
      counters().sessions.fetch_sub(1, std::memory_order_relaxed);
      counters().issued.fetch_sub(static_cast<std::uint64_t>(session->reserved),
                                  std::memory_order_relaxed);
    }
    if (user < 0) return;
    // A server that refuses at once must not be hammered by a busy loop: a failed user waits.
    constexpr Nanos kPauseAfterFailure = std::chrono::milliseconds(100);
    const Nanos pause = record.ok() ? think : std::max(think, kPauseAfterFailure);
    At(record.end + pause, [this, user](Nanos at) { NextOfUser(user, at); });
  }

 private:
  const RunPlan& plan() const { return shared_->plan; }
  int lane() const { return plan().first_lane + number_; }
  int lanes() const { return plan().lanes > 0 ? plan().lanes : plan().threads; }

  // Now when that is due already.
  template <typename Next>
  void At(Nanos when, Next next) {
    if (when <= net::MonotonicNow()) return next(when);
    loop_->RunAt(when, [next, when] { next(when); });
  }

  Nanos ThinkTime(const RequestRecord& record) const {
    const ArrivalSpec& arrival = plan().arrival;
    if (!arrival.think_exponential || arrival.think_time <= Nanos(0)) return arrival.think_time;
    Random random(StreamSeed(StreamSeed(plan().seed ^ 0x7417, record.index), record.turn));
    return FromSeconds(ToSeconds(arrival.think_time) * random.Exponential());
  }

  // ----- sessions

  // Takes the answer into the conversation; false when that was the last turn or went wrong.
  bool Continues(Session& session, const RequestRecord& record, const std::string& answer) {
    if (!record.ok()) {
      if (record.error != RequestError::kUnfinished) ++measurement_.sessions_failed;
      return false;
    }
    if (session.turn + 1 >= session.turns) {
      ++measurement_.sessions_complete;
      return false;
    }
    const auto say = [&](const char* role, const std::string& content_json) {
      if (!session.history.empty()) session.history += ',';
      session.history.append("{\"role\":\"").append(role).append("\",\"content\":");
      session.history.append(content_json).append("}");
    };
    say("user", session.question);
    say("assistant",
        nlohmann::json(answer).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    session.seen = record.told_usage ? record.told_input + record.told_output : 0;
    ++session.turn;
    return true;
  }

  void NextTurn(const std::shared_ptr<Session>& session, Nanos intended) {
    const bool measured = intended >= plan().window_begin;
    const bool paid = std::exchange(session->reserved, std::max(0, session->reserved - 1)) > 0;
    if (MayIssue(intended) && (paid || session->user < 0 || !measured || Take(1))) {
      return Send(session->number, intended, measured, session->user, session);
    }
    counters().sessions.fetch_sub(1, std::memory_order_relaxed);
    if (session->user >= 0) UserLeaves();
  }

  // Whether a request may still begin.
  bool MayIssue(Nanos intended) const {
    return !shared_->stop.load(std::memory_order_relaxed) && intended < plan().window_end;
  }

  // Takes `count` of a set number of requests, if any is left. All turns of a session are taken
  // when it begins: the last ones are played to their end, and none is cut by the number.
  bool Take(int count) {
    if (plan().requests == 0) return true;
    const auto taken = static_cast<std::uint64_t>(count);
    if (counters().issued.fetch_add(taken, std::memory_order_relaxed) < plan().requests)
      return true;
    counters().issued.fetch_sub(taken, std::memory_order_relaxed);
    return false;
  }

  void UserLeaves() {
    if (--active_users_ == 0) NoMore();
  }

  void NoMore() {
    if (done_issuing_) return;
    done_issuing_ = true;
    measurement_.cpu_s = ThreadCpuSeconds() - cpu_at_start_;
    measurement_.wall_s = ToSeconds(net::MonotonicNow() - wall_at_start_);
    shared_->still_issuing.fetch_sub(1, std::memory_order_release);
  }

  // ----- closed loop

  void StartUsers() {
    const int users = plan().arrival.users;
    for (int user = lane(); user < users; user += lanes()) ++active_users_;
    if (active_users_ == 0) return NoMore();
    // Spread over the warm-up, users do not stay in step and their first burst is no measurement.
    const Nanos spread = plan().window_begin - plan().start;
    for (int user = lane(); user < users; user += lanes()) {
      const Nanos at = plan().start + Nanos(spread.count() / users * user);
      loop_->RunAt(at, [this, user, at] { NextOfUser(user, at); });
    }
  }

  void NextOfUser(int user, Nanos intended) {
    const bool measured = intended >= plan().window_begin;
    const auto number = static_cast<std::uint64_t>(user) +
                        per_user_[user] * static_cast<std::uint64_t>(plan().arrival.users);
    const int turns = plan().sessions ? plan().prompts->Turns(number) : 1;
    if (!MayIssue(intended) || (measured && !Take(turns))) return UserLeaves();
    ++per_user_[user];
    std::shared_ptr<Session> session = Begin(number, user);
    if (measured && session != nullptr) session->reserved = turns - 1;
    Send(number, intended, measured, user, std::move(session));
  }

  // A new session, or nothing when requests stand alone.
  std::shared_ptr<Session> Begin(std::uint64_t number, int user) {
    if (!plan().sessions) return nullptr;
    auto session = std::make_shared<Session>();
    session->number = number;
    session->user = user;
    session->turns = plan().prompts->Turns(number);
    session->history = plan().prompts->Opening(number);
    counters().sessions.fetch_add(1, std::memory_order_relaxed);
    ++measurement_.sessions_begun;
    return session;
  }

  // ----- open loop

  void StartSchedule() {
    if (plan().trace == nullptr) {
      schedule_ = std::make_unique<ArrivalSchedule>(plan().arrival, plan().seed);
    }
    if (AdvanceSchedule()) ArmSchedule();
  }

  // To the next arrival that is this thread's; false when there is none left.
  bool AdvanceSchedule() {
    while (true) {
      next_number_ = arrivals_++;
      Nanos offset{0};
      if (schedule_ != nullptr) {
        offset = schedule_->Next();
      } else {
        const std::vector<TraceRequest>& requests = plan().trace->requests;
        if (next_number_ >= requests.size()) break;
        offset = FromSeconds(ToSeconds(requests[next_number_].at) / plan().arrival.speedup);
      }
      next_at_ = plan().start + offset;
      if (next_at_ >= plan().window_end) break;
      next_measured_ = next_at_ >= plan().window_begin;
      if (next_measured_ && plan().requests > 0 && ++measured_arrivals_ > plan().requests) break;
      if (static_cast<int>(next_number_ % static_cast<std::uint64_t>(lanes())) == lane()) {
        if (next_measured_) ++measurement_.schedule_wanted;
        return true;
      }
    }
    NoMore();
    return false;
  }

  void ArmSchedule() {
    loop_->RunAt(next_at_, [this] { RunSchedule(); });
  }

  void RunSchedule() {
    while (true) {
      if (shared_->stop.load(std::memory_order_relaxed)) return NoMore();
      Send(next_number_, next_at_, next_measured_, /*user=*/-1, Begin(next_number_, /*user=*/-1));
      if (!AdvanceSchedule()) return;
      if (next_at_ > net::MonotonicNow()) return ArmSchedule();
    }
  }

  // ----- one request

  void Send(std::uint64_t number, Nanos intended, bool measured, int user,
            std::shared_ptr<Session> session) {
    Prompt prompt = session == nullptr ? plan().prompts->Make(number)
                                       : plan().prompts->MakeTurn(number, session->turn);
    RequestRecord record;
    if (session != nullptr) {
      record.turn = static_cast<std::uint32_t>(session->turn);
      record.seen_before = session->seen;
      session->question = prompt.content_json;
      if (!session->history.empty()) {
        prompt.messages_json = "[" + session->history +
                               ",{\"role\":\"user\",\"content\":" + prompt.content_json + "}]";
      }
    }
    record.index = number;
    record.intended = intended;
    record.queued = net::MonotonicNow();
    record.phase = measured ? Phase::kMeasured : Phase::kWarmUp;
    record.wanted_input = static_cast<std::uint32_t>(prompt.input_tokens);
    record.wanted_output = static_cast<std::uint32_t>(prompt.output_tokens);

    net::ClientRequest request;
    request.method = "POST";
    request.url = shared_->shape.url;
    request.headers = shared_->shape.headers;
    request.body = MakeBody(shared_->shape, prompt);
    request.connect_timeout = shared_->shape.connect_timeout;
    request.total_timeout = shared_->shape.request_timeout;

    recorder_.Started(record.queued);
    counters().in_flight.fetch_add(1, std::memory_order_relaxed);
    auto exchange = std::make_shared<Exchange>(this, record, user, std::move(session));
    open_.emplace(exchange.get(), exchange);
    const Result<net::HttpClient::CallId> id = client_->Start(std::move(request), exchange);
    if (id) {
      exchange->call = *id;
    } else {
      exchange->Abandon(RequestError::kClientLimit);
    }
  }

  Shared* shared_;
  int number_;
  std::unique_ptr<net::EventLoop> loop_;
  std::unique_ptr<net::HttpClient> client_;
  Recorder recorder_;
  ChunkReader reader_;
  ChunkLog::Lane* chunks_ = nullptr;
  ThreadMeasurement measurement_;
  std::set<std::string> error_samples_;
  std::unordered_map<Exchange*, std::shared_ptr<Exchange>> open_;
  std::thread thread_;
  double cpu_at_start_ = 0;
  Nanos wall_at_start_{0};
  bool done_issuing_ = false;
  bool finishing_ = false;

  int active_users_ = 0;
  std::unordered_map<int, std::uint64_t> per_user_;  // requests so far

  std::unique_ptr<ArrivalSchedule> schedule_;
  std::uint64_t arrivals_ = 0, measured_arrivals_ = 0, next_number_ = 0;
  Nanos next_at_{0};
  bool next_measured_ = false;
};

void Exchange::OnHead(const net::HttpResponseHead& head, const net::ClientTimes& times) {
  CopyTimes(times);  // an exchange that is abandoned hears of them no more
  record_.http_status = static_cast<std::uint16_t>(head.status);
  const std::string* type = net::FindHeader(head.headers, "content-type");
  stream_ =
      head.status == 200 && type != nullptr && type->find("text/event-stream") != std::string::npos;
}

void Exchange::OnBody(std::string_view piece, Nanos received) {
  received_ = received;
  if (!stream_) {
    if (body_.size() + piece.size() <= kMostBody) body_.append(piece);
    return;
  }
  const Status fed = sse_.Feed(piece, *this);
  if (!fed) Fail(RequestError::kBadEvent, fed.error().message);
  if (record_.error != RequestError::kNone) {
    // Nothing that follows can mend it: free the server and the user.
    Abandon(record_.error);
  }
}

void Exchange::OnEvent(const net::SseEvent& event) { Take(worker_->reader().Read(event.data)); }

void Exchange::Take(const ChunkFacts& facts) {
  if (!facts.well_formed) return Fail(RequestError::kBadEvent, "an event is not JSON");
  if (!facts.error.empty()) return Fail(RequestError::kErrorEvent, facts.error);
  finished_ = finished_ || facts.done || facts.finished;
  if (session_ != nullptr) answer_ += facts.text;
  if (facts.has_usage) {
    record_.told_usage = true;
    record_.told_input = static_cast<std::uint32_t>(facts.prompt_tokens);
    record_.told_output = static_cast<std::uint32_t>(facts.completion_tokens);
    record_.told_cached = static_cast<std::uint32_t>(facts.cached_tokens);
  }
  if (!facts.bears_tokens) {
    ++record_.other_chunks;
    return;
  }
  if (facts.sent_ns != 0) worker_->recorder().TimingError(received_ - Nanos(facts.sent_ns));
  const bool first = record_.chunks == 0;
  const Nanos gap = first ? Recorder::kFirstChunk : received_ - record_.last_token;
  if (first) record_.first_token = received_;
  record_.longest_gap = std::max(record_.longest_gap, gap);
  record_.last_token = received_;
  ++record_.chunks;
  record_.counted_output += static_cast<std::uint32_t>(facts.tokens);
  worker_->recorder().Chunk(received_, facts.tokens, gap, record_.phase == Phase::kMeasured);
  worker_->KeepChunk(record_, received_, facts.tokens);
  worker_->counters().tokens.fetch_add(static_cast<std::uint64_t>(facts.tokens),
                                       std::memory_order_relaxed);
}

void Exchange::CopyTimes(const net::ClientTimes& times) {
  record_.connected = std::max(times.connected, times.secured);
  record_.sent = times.sent;
  record_.first_byte = times.first_byte;
  record_.end = times.ended;
  record_.reused_connection = times.reused;
  record_.resent = times.resent > 0;
}

void Exchange::OnDone(const net::ClientTimes& times) {
  CopyTimes(times);
  if (record_.http_status != 200) {
    Fail(RequestError::kHttpStatus, fmt::format("HTTP {}: {}", record_.http_status, body_));
  } else if (!stream_) {
    const ChunkFacts facts = worker_->reader().ReadWhole(body_);
    if (!facts.well_formed) {
      Fail(RequestError::kBadResponse, "the answer is neither an event stream nor JSON");
    } else if (!facts.error.empty()) {
      Fail(RequestError::kErrorEvent, facts.error);
    } else {
      if (session_ != nullptr) answer_ = facts.text;
      record_.told_usage = facts.has_usage;
      record_.told_input = static_cast<std::uint32_t>(facts.prompt_tokens);
      record_.told_output = static_cast<std::uint32_t>(facts.completion_tokens);
      record_.told_cached = static_cast<std::uint32_t>(facts.cached_tokens);
      if (facts.bears_tokens || facts.completion_tokens > 0) {
        // The tokens came together: there is an end, but no first token to time.
        record_.last_token = times.ended;
        record_.counted_output = facts.has_usage ? record_.told_output : 1;
        worker_->recorder().Chunk(times.ended, static_cast<int>(record_.counted_output),
                                  Recorder::kFirstChunk, record_.phase == Phase::kMeasured);
        worker_->counters().tokens.fetch_add(record_.counted_output, std::memory_order_relaxed);
      } else {
        Fail(RequestError::kNoTokens, "the answer is empty");
      }
    }
  } else if (!finished_) {
    Fail(RequestError::kStreamCut, "the stream ended without finish_reason or [DONE]");
  } else if (record_.chunks == 0) {
    Fail(RequestError::kNoTokens, "the stream held no token");
  }
  worker_->Ended(this, record_, message_);
}

void Exchange::OnFailure(const net::ClientFailure& failure, const net::ClientTimes& times) {
  CopyTimes(times);
  Fail(FromClient(failure.kind), failure.error.message);
  worker_->Ended(this, record_, message_);
}

void Exchange::Fail(RequestError error, std::string message) {
  if (record_.error != RequestError::kNone) return;
  record_.error = error;
  message_ = std::move(message);
}

void Exchange::Abandon(RequestError error) {
  if (record_.error == RequestError::kNone) record_.error = error;
  worker_->client().Cancel(call);
  worker_->Ended(this, record_, message_);
}

}  // namespace

struct Generator::Impl {
  Shared shared;
  std::vector<std::unique_ptr<Worker>> workers;
};

std::string MakeBody(const RequestShape& shape, const Prompt& prompt) {
  std::string body;
  body.reserve(shape.head_json.size() + prompt.content_json.size() + prompt.messages_json.size() +
               160);
  body += shape.head_json;
  if (prompt.output_tokens > 0) {
    const std::string length = std::to_string(prompt.output_tokens);
    body.append(",\"max_tokens\":").append(length);
    if (shape.exact_lengths) {
      body.append(",\"min_tokens\":").append(length).append(",\"ignore_eos\":true");
    }
  }
  if (!shape.chat) {
    body.append(",\"prompt\":").append(prompt.content_json);
  } else if (!prompt.messages_json.empty()) {
    body.append(",\"messages\":").append(prompt.messages_json);
  } else {
    body.append(",\"messages\":[{\"role\":\"user\",\"content\":")
        .append(prompt.content_json)
        .append("}]");
  }
  body += '}';
  return body;
}

Generator::Generator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Generator::~Generator() {
  if (impl_ != nullptr) Finish();
}

Result<std::unique_ptr<Generator>> Generator::Start(RunPlan plan, RequestShape shape) {
  auto impl = std::make_unique<Impl>();
  impl->shared.plan = std::move(plan);
  impl->shared.shape = std::move(shape);
  for (int i = 0; i < impl->shared.plan.threads; ++i) {
    TARE_TRY(std::unique_ptr<net::EventLoop> loop, net::EventLoop::Create());
    net::HttpClientOptions options;
    options.max_idle_per_origin = 1 << 20;
    options.verify_tls = impl->shared.plan.verify_tls;
    TARE_TRY(std::unique_ptr<net::HttpClient> client,
             net::HttpClient::Create(loop.get(), std::move(options)));
    impl->workers.push_back(
        std::make_unique<Worker>(&impl->shared, i, std::move(loop), std::move(client)));
  }
  impl->shared.still_issuing = impl->shared.plan.threads;
  for (const auto& worker : impl->workers) worker->Start();
  return std::unique_ptr<Generator>(new Generator(std::move(impl)));
}

bool Generator::Idle() const {
  const bool issuing = (impl_->shared.still_issuing.load(std::memory_order_acquire) > 0 ||
                        impl_->shared.counters.sessions.load(std::memory_order_relaxed) > 0) &&
                       !impl_->shared.stop.load(std::memory_order_relaxed);
  return !issuing && impl_->shared.counters.in_flight.load(std::memory_order_relaxed) == 0;
}

void Generator::StopIssuing() { impl_->shared.stop.store(true, std::memory_order_relaxed); }

LoadSource::Counts Generator::counts() const {
  const GeneratorCounters& c = impl_->shared.counters;
  return {c.in_flight.load(std::memory_order_relaxed), c.ok.load(std::memory_order_relaxed),
          c.failed.load(std::memory_order_relaxed), c.tokens.load(std::memory_order_relaxed)};
}

LoadSource::Recording Generator::Finish() {
  for (const auto& worker : impl_->workers) worker->Finish();
  Recording recording{Recorder(impl_->shared.plan.start, impl_->shared.plan.window_begin,
                               impl_->shared.plan.window_end),
                      {},
                      {},
                      nullptr};
  std::set<std::string> samples;
  for (const auto& worker : impl_->workers) {
    recording.recorder.Merge(std::move(worker->recorder()));
    recording.threads.push_back(worker->measurement());
    samples.insert(worker->error_samples().begin(), worker->error_samples().end());
  }
  recording.error_samples.assign(samples.begin(), samples.end());
  impl_.reset();
  return recording;
}

}  // namespace tare::load
