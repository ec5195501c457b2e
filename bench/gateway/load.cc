#include "gateway/load.h"

#include <memory>
#include <utility>

#include "net/event_loop.h"
#include "net/http_client.h"

namespace tare::bench {

namespace {

constexpr Nanos kGiveUp = std::chrono::seconds(120);

class Run {
 public:
  Run(const LoadOptions& options, net::EventLoop* loop, net::HttpClient* client)
      : options_(options), loop_(loop), client_(client) {}

  void Begin() {
    begin_ = net::MonotonicNow();
    loop_->RunAt(begin_ + kGiveUp + options_.duration, [this] { loop_->Stop(); });
    if (options_.rate > 0) {
      planned_ = static_cast<std::uint64_t>(ToSeconds(options_.duration) * options_.rate);
      Arrive();
    } else {
      planned_ = static_cast<std::uint64_t>(options_.streams) *
                 static_cast<std::uint64_t>(options_.repeats);
      for (int i = 0; i < options_.streams; ++i) Send(net::MonotonicNow(), options_.repeats - 1);
    }
  }

  LoadResult Take() {
    result_.seconds = ToSeconds(net::MonotonicNow() - begin_);
    result_.failed += planned_ - result_.ok - result_.failed;
    return std::move(result_);
  }

 private:
  class Handler final : public net::ClientHandler {
   public:
    Handler(Run* run, Nanos intended, int repeats)
        : run_(run), intended_(intended), repeats_(repeats) {}
    void OnHead(const net::HttpResponseHead& head, const net::ClientTimes&) override {
      status_ = head.status;
    }
    void OnBody(std::string_view piece, Nanos) override {
      for (std::size_t at = 0; (at = piece.find("\"content\":\" token", at)) != piece.npos; ++at) {
        ++run_->result_.chunks;
      }
      tail_.append(piece.substr(piece.size() > 64 ? piece.size() - 64 : 0));
      if (tail_.size() > 128) tail_.erase(0, tail_.size() - 64);
    }
    void OnDone(const net::ClientTimes& times) override {
      const bool whole = tail_.find("[DONE]") != tail_.npos || tail_.ends_with('}');
      run_->Ended(status_ == 200 && whole, times.ended - intended_,
                  "status " + std::to_string(status_) + ": " + tail_, repeats_);
    }
    void OnFailure(const net::ClientFailure& failure, const net::ClientTimes&) override {
      run_->Ended(false, {}, failure.error.message, repeats_);
    }

   private:
    Run* const run_;
    const Nanos intended_;
    const int repeats_;
    int status_ = 0;
    std::string tail_;
  };

  void Arrive() {
    while (sent_ < planned_) {
      const Nanos due = begin_ + FromSeconds(static_cast<double>(sent_) / options_.rate);
      if (due > net::MonotonicNow()) {
        loop_->RunAt(due, [this] { Arrive(); });
        return;
      }
      ++sent_;
      Send(due, 0);
    }
  }

  void Send(Nanos intended, int repeats) {
    net::ClientRequest request;
    request.method = "POST";
    request.url = options_.url;
    request.headers = {{"Content-Type", "application/json"}};
    if (!options_.key.empty())
      request.headers.push_back({"Authorization", "Bearer " + options_.key});
    request.body = options_.body;
    const auto id =
        client_->Start(std::move(request), std::make_shared<Handler>(this, intended, repeats));
    if (!id) Ended(false, {}, id.error().message, 0);
  }

  void Ended(bool ok, Nanos latency, const std::string& failure, int repeats) {
    if (ok) {
      ++result_.ok;
      result_.latency.Add(latency.count());
    } else {
      ++result_.failed;
      if (result_.first_failure.empty()) result_.first_failure = failure;
    }
    if (repeats > 0) {
      Send(net::MonotonicNow(), repeats - 1);
    } else if (result_.ok + result_.failed >= planned_) {
      loop_->Stop();
    }
  }

  const LoadOptions& options_;
  net::EventLoop* const loop_;
  net::HttpClient* const client_;
  Nanos begin_{};
  std::uint64_t planned_ = 0, sent_ = 0;
  LoadResult result_;
};

}  // namespace

Result<LoadResult> RunLoad(const LoadOptions& options) {
  TARE_TRY(const auto loop, net::EventLoop::Create());
  net::HttpClientOptions client_options;
  client_options.max_idle_per_origin = 20'000;
  TARE_TRY(const auto client, net::HttpClient::Create(loop.get(), client_options));
  Run run(options, loop.get(), client.get());
  run.Begin();
  loop->Run();
  return run.Take();
}

}  // namespace tare::bench
