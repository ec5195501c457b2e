#include "gateway/fake_upstream.h"

#include <fmt/format.h>

namespace tare::bench {

namespace {

constexpr const char* kChunk =
    "data: "
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
    "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"finish_reason\":null}]}\n\n";
constexpr const char* kEnd =
    "data: "
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
    "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":4,"
    "\"total_tokens\":24}}\n\ndata: [DONE]\n\n";

}  // namespace

Result<std::unique_ptr<FakeUpstream>> FakeUpstream::Start() {
  std::unique_ptr<FakeUpstream> upstream(new FakeUpstream);
  TARE_TRY(upstream->loop_, net::EventLoop::Create());
  net::HttpServerOptions options;
  options.max_connections = 20'000;
  TARE_TRY(upstream->server_,
           net::HttpServer::Start(options, [raw = upstream.get()](auto, auto writer) {
             raw->Handle(std::move(writer));
           }));
  upstream->thread_ = std::thread([loop = upstream->loop_.get()] { loop->Run(); });
  return upstream;
}

FakeUpstream::~FakeUpstream() {
  server_.reset();
  if (!thread_.joinable()) return;
  loop_->Stop();
  thread_.join();
}

std::string FakeUpstream::Url() const {
  return fmt::format("http://127.0.0.1:{}", server_->port());
}

void FakeUpstream::Answer(FakeAnswer answer) {
  chunks_.store(answer.chunks);
  gap_ns_.store(answer.gap.count());
}

void FakeUpstream::Handle(std::shared_ptr<net::ResponseWriter> writer) {
  requests_.fetch_add(1, std::memory_order_relaxed);
  writer->StartStream(200, {{"Content-Type", "text/event-stream"}});
  const int chunks = chunks_.load();
  const Nanos gap(gap_ns_.load());
  if (gap == Nanos{}) {
    for (int i = 0; i < chunks; ++i) writer->Write(kChunk);
    writer->Write(kEnd);
    writer->End();
    return;
  }
  loop_->Post([this, writer = std::move(writer), chunks, gap] { Continue(writer, chunks, gap); });
}

void FakeUpstream::Continue(std::shared_ptr<net::ResponseWriter> writer, int left, Nanos gap) {
  if (left == 0) {
    writer->Write(kEnd);
    writer->End();
    return;
  }
  if (!writer->Write(kChunk)) return;
  loop_->RunAt(net::MonotonicNow() + gap,
               [this, writer = std::move(writer), left, gap] { Continue(writer, left - 1, gap); });
}

}  // namespace tare::bench
