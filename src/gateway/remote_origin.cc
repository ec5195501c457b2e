#include "gateway/remote_origin.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "api/embeddings.h"
#include "api/json_text.h"
#include "api/upstream_wire.h"
#include "api/wire_error.h"
#include "net/gzip_decoder.h"
#include "net/sse_parser.h"

namespace tare::gateway {

struct RemoteOrigin::Shared {
  RemoteOptions options;
  net::EventLoop* loop = nullptr;
  net::HttpClient* client = nullptr;
  bool asks_usage = true;  // until the server refuses stream_options
};

namespace {

constexpr std::size_t kMaxWholeBody = 16 * 1024 * 1024;
// 2,048 vectors of 4,096 numbers as JSON text.
constexpr std::size_t kMaxEmbeddingsBody = 192 * 1024 * 1024;
constexpr int kOk = 200;

std::optional<Nanos> RetryAfter(const net::HttpHeaders& headers) {
  const std::string* value = net::FindHeader(headers, "Retry-After");
  double seconds = 0;
  if (value == nullptr) return std::nullopt;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), seconds);
  // A date is the other form allowed; servers of models send seconds.
  if (error != std::errc() || !(seconds >= 0) || seconds > 86400) return std::nullopt;
  return FromSeconds(seconds);
}

// Lives as long as the client or the attempt's owner needs it; silent once detached.
class Exchange final : public net::ClientHandler,
                       public net::SseSink,
                       public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<RemoteOrigin::Shared> shared,
           std::shared_ptr<const api::ChatRequest> request, std::string model, AttemptSink* sink)
      : shared_(std::move(shared)),
        request_(std::move(request)),
        model_(std::move(model)),
        sink_(sink) {}

  // Failures are reported later, as Attempt promises.
  void Begin() {
    const RemoteOptions& options = shared_->options;
    const Nanos patience =
        request_->embeddings ? options.total_timeout : options.first_token_timeout;
    timer_ = shared_->loop->RunAt(net::MonotonicNow() + patience, [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->FirstTokenIsLate();
    });
    Send();
  }

  void Detach() {
    sink_ = nullptr;
    if (!running_out_) Release();
  }

  void OnHead(const net::HttpResponseHead& head, const net::ClientTimes&) override {
    status_ = head.status;
    retry_after_ = RetryAfter(head.headers);
    const std::string* type = net::FindHeader(head.headers, "Content-Type");
    streams_ = !request_->embeddings && status_ == kOk && type != nullptr &&
               type->starts_with("text/event-stream");
    const std::string* encoding = net::FindHeader(head.headers, "Content-Encoding");
    if (encoding == nullptr || encoding->empty() || net::EqualsIgnoreCase(*encoding, "identity")) {
      decoder_.reset();
    } else if (net::GzipDecoder::Knows(*encoding)) {
      decoder_.emplace();
    } else {
      Fail({ErrorKind::kNetwork,
            fmt::format("its answer is compressed as '{}', which was not asked for",
                        api::ReplaceIllFormed(*encoding)),
            "", ""});
    }
  }

  void OnBody(std::string_view piece, Nanos) override {
    if (sink_ == nullptr) return;
    const auto keep = shared_from_this();
    if (!decoder_) return TakeBody(piece);
    const Status status = decoder_->Feed(piece, [this](std::string_view plain) {
      TakeBody(plain);
      return sink_ != nullptr;
    });
    if (!status) Fail(status.error());
  }

  void TakeBody(std::string_view piece) {
    if (streams_) {
      const Status status = parser_.Feed(piece, *this);
      if (!status) Fail(status.error());
    } else if (whole_.size() + piece.size() >
               (request_->embeddings ? kMaxEmbeddingsBody : kMaxWholeBody)) {
      Fail({ErrorKind::kCorrupt, "its answer is too large", "", ""});
    } else {
      whole_.append(piece);
    }
  }

  void OnDone(const net::ClientTimes&) override {
    call_.reset();
    if (sink_ == nullptr) return;
    if (decoder_ && !decoder_->complete() && !AllFinished()) {
      Fail({ErrorKind::kNetwork, "its compressed answer was cut off", "", ""});
    } else if (status_ != kOk) {
      OnErrorAnswer();
    } else if (streams_) {
      OnStreamEnd();
    } else {
      OnWholeAnswer();
    }
  }

  void OnFailure(const net::ClientFailure& failure, const net::ClientTimes&) override {
    call_.reset();
    if (sink_ == nullptr) return;
    if (AllFinished()) {
      Complete();
      return;
    }
    using Kind = net::ClientFailureKind;
    silent_ = failure.kind == Kind::kFirstByteTimeout || failure.kind == Kind::kIdleTimeout ||
              failure.kind == Kind::kTotalTimeout;
    Fail(failure.error);
  }

  void OnEvent(const net::SseEvent& event) override {
    if (sink_ == nullptr) return;
    auto read = api::ReadStreamEvent(event.data);
    if (!read) {
      Fail(std::move(read).error());
    } else if (read->error) {
      Fail(std::move(*read->error));
    } else {
      Take(std::move(*read));
    }
  }

 private:
  void Send() {
    const RemoteOptions& options = shared_->options;
    auto body = api::UpstreamBody(*request_, model_, shared_->asks_usage);
    if (!body) return FailLater(std::move(body).error());
    net::ClientRequest call;
    call.method = "POST";
    call.url = request_->embeddings ? EmbeddingsEndpoint(options.url)
                                    : ChatEndpoint(options.url, !request_->messages_json.empty());
    call.headers = {{"Content-Type", "application/json"},
                    {"Accept", request_->embeddings ? "application/json" : "text/event-stream"},
                    {"Accept-Encoding", "identity"},  // servers that compress all the same exist
                    {"X-Request-Id", request_->id}};
    if (!options.api_key.empty()) {
      call.headers.push_back({"Authorization", "Bearer " + options.api_key});
    }
    call.body = std::move(*body);
    call.connect_timeout = options.connect_timeout;
    call.idle_timeout = options.gap_timeout;
    call.total_timeout = options.total_timeout;
    auto id = shared_->client->Start(std::move(call), shared_from_this());
    if (!id) return FailLater(std::move(id).error());
    call_ = *id;
  }

  void FailLater(Error error) {
    shared_->loop->Post([weak = weak_from_this(), error = std::move(error)]() mutable {
      if (auto self = weak.lock()) self->Fail(std::move(error));
    });
  }

  void Take(api::StreamEvent event) {
    if (event.usage) usage_ = event.usage;
    for (api::ChatChunk& chunk : event.chunks) {
      if (sink_ == nullptr) return;
      if (chunk.tokens > 0 && timer_.serial != 0 && !content_seen_) {
        content_seen_ = true;
        StopTimer();
      }
      tokens_ += chunk.tokens;
      if (chunk.finish == api::FinishReason::kError ||
          chunk.finish == api::FinishReason::kCancelled) {
        return Fail({ErrorKind::kNetwork, "it broke the answer off", "", ""});
      }
      if (chunk.finish != api::FinishReason::kNone) Finished(chunk.index);
      sink_->OnChunk(std::move(chunk));
    }
    if (sink_ == nullptr) return;
    if (event.done) {
      AllFinished() ? CompleteAtDone()
                    : Fail({ErrorKind::kNetwork, "it ended the stream without a finish", "", ""});
    } else if (AllFinished()) {
      WaitForTheRest();
    }
  }

  void Finished(int choice) {
    for (const int known : finished_) {
      if (known == choice) return;
    }
    finished_.push_back(choice);
  }
  bool AllFinished() const { return static_cast<int>(finished_.size()) >= request_->n; }

  // Usage and "[DONE]" should follow the finish; some servers send neither, or keep the stream
  // open.
  void WaitForTheRest() {
    if (waiting_for_rest_) return;
    waiting_for_rest_ = true;
    StopTimer();
    timer_ = shared_->loop->RunAt(net::MonotonicNow() + shared_->options.finish_timeout,
                                  [weak = weak_from_this()] {
                                    if (auto self = weak.lock()) self->Complete();
                                  });
  }

  void OnStreamEnd() {
    if (AllFinished()) {
      Complete();
    } else {
      Fail({ErrorKind::kNetwork, "its stream was cut off before the answer's end", "", ""});
    }
  }

  void OnWholeAnswer() {
    if (request_->embeddings) return OnEmbeddings();
    auto read = api::ReadStreamEvent(whole_);
    if (!read) return Fail(std::move(read).error());
    if (read->error) return Fail(std::move(*read->error));
    read->done = true;
    Take(std::move(*read));
  }

  void OnEmbeddings() {
    auto answer = api::ReadEmbeddingsAnswer(whole_);
    if (!answer) return Fail(std::move(answer).error());
    usage_ = answer->usage;
    api::ChatChunk chunk;
    chunk.text = std::move(answer->data);
    chunk.finish = api::FinishReason::kStop;
    sink_->OnChunk(std::move(chunk));
    if (sink_ != nullptr) Complete();
  }

  void OnErrorAnswer() {
    if (status_ == 400 && shared_->asks_usage &&
        whole_.find("stream_options") != std::string::npos) {
      shared_->asks_usage = false;
      whole_.clear();
      Send();
      return;
    }
    Fail(api::ReadUpstreamError(status_, whole_));
  }

  void FirstTokenIsLate() {
    timer_ = {};
    silent_ = true;
    Fail({ErrorKind::kDeadlineExceeded, "no token came in time", "", ""});
  }

  // Only the end of the HTTP message is missing: left to come, so that the connection can be used
  // again. The gap's time limit bounds it.
  void CompleteAtDone() {
    running_out_ = call_.has_value();
    StopTimer();
    AttemptSink* sink = std::exchange(sink_, nullptr);
    if (sink != nullptr) Deliver(*sink);
  }

  void Complete() {
    AttemptSink* sink = std::exchange(sink_, nullptr);
    Release();
    if (sink != nullptr) Deliver(*sink);
  }

  // A server that sends no usage leaves the prompt's length unknown; pieces stand for tokens.
  void Deliver(AttemptSink& sink) { sink.OnComplete(usage_.value_or(api::Usage{0, tokens_, 0})); }

  void Fail(Error error) {
    AttemptSink* sink = std::exchange(sink_, nullptr);
    Release();
    if (sink == nullptr) return;
    Failure failure;
    failure.error = std::move(error);
    failure.error.message =
        fmt::format("upstream '{}': {}", shared_->options.name, failure.error.message);
    failure.status = status_ == kOk ? 0 : status_;
    if (failure.status == 0 && failure.error.kind == ErrorKind::kInvalidArgument) {
      failure.error.kind = ErrorKind::kNetwork;
    }
    failure.retry_after = retry_after_;
    failure.silent = silent_;
    sink->OnFailure(std::move(failure));
  }

  void StopTimer() {
    if (timer_.serial != 0) shared_->loop->CancelTimer(std::exchange(timer_, {}));
  }
  void Release() {
    StopTimer();
    if (call_) shared_->client->Cancel(*std::exchange(call_, std::nullopt));
  }

  const std::shared_ptr<RemoteOrigin::Shared> shared_;
  const std::shared_ptr<const api::ChatRequest> request_;
  const std::string model_;
  AttemptSink* sink_;
  std::optional<net::HttpClient::CallId> call_;
  net::EventLoop::TimerId timer_;
  net::SseParser parser_;
  std::optional<net::GzipDecoder> decoder_;  // the answer came compressed
  int status_ = 0;
  std::optional<Nanos> retry_after_;
  bool streams_ = false;
  bool content_seen_ = false;
  bool waiting_for_rest_ = false;
  bool silent_ = false;
  bool running_out_ = false;  // the answer is complete, its message not yet
  std::string whole_;         // the body, when it is not a stream
  std::vector<int> finished_;
  std::optional<api::Usage> usage_;
  int tokens_ = 0;
};

class RemoteAttempt final : public Attempt {
 public:
  explicit RemoteAttempt(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~RemoteAttempt() override { exchange_->Detach(); }

 private:
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace

namespace {

// `path` below the version, whether the base names it or not.
net::Url Endpoint(const net::Url& base, std::string path) {
  const std::string& root = base.target;
  const bool has_version = root.ends_with("/v1") || root.ends_with("/v1/");
  if (!has_version) path.insert(0, "/v1");
  net::Url url = base;
  while (url.target.size() > 1 && url.target.back() == '/') url.target.pop_back();
  return url.WithPath(path);
}

}  // namespace

net::Url ChatEndpoint(const net::Url& base, bool chat) {
  return Endpoint(base, chat ? "/chat/completions" : "/completions");
}

net::Url EmbeddingsEndpoint(const net::Url& base) { return Endpoint(base, "/embeddings"); }

bool Same(const RemoteOptions& a, const RemoteOptions& b) {
  const auto facts = [](const RemoteOptions& o) {
    return std::tie(o.name, o.url.tls, o.url.host, o.url.port, o.url.target, o.api_key,
                    o.connect_timeout, o.first_token_timeout, o.gap_timeout, o.total_timeout,
                    o.finish_timeout);
  };
  return facts(a) == facts(b);
}

RemoteOrigin::RemoteOrigin(RemoteOptions options, net::EventLoop* loop, net::HttpClient* client)
    : shared_(std::make_shared<Shared>()) {
  shared_->options = std::move(options);
  shared_->loop = loop;
  shared_->client = client;
}
RemoteOrigin::~RemoteOrigin() = default;

std::unique_ptr<Attempt> RemoteOrigin::Start(std::shared_ptr<const api::ChatRequest> request,
                                             const std::string& model, AttemptSink* sink) {
  auto exchange = std::make_shared<Exchange>(shared_, std::move(request), model, sink);
  exchange->Begin();
  return std::make_unique<RemoteAttempt>(std::move(exchange));
}

}  // namespace tare::gateway
