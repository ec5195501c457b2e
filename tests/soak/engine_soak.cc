// Hours of mixed random traffic against the engine, to run under the sanitizers:
//   engine_soak [SECONDS [CLIENTS]]     default 10 seconds, 10,000 clients
// First the clients go away in mid-answer, one after the other; then threads submit, cancel, let
// deadlines pass and ask for several choices until the time is over. Every request must end exactly
// once and no page may stay in use.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "engine/collecting_sink.h"
#include "engine/cpu_executor.h"
#include "engine/engine.h"
#include "engine/fake_model.h"

namespace tare::engine {
namespace {

class CountingSink final : public GenerateSink {
 public:
  explicit CountingSink(std::atomic<std::int64_t>& open) : open_(open) { ++open_; }
  ~CountingSink() override {
    if (terminal_calls_ != 1) {
      std::fprintf(stderr, "a request ended %d times\n", terminal_calls_.load());
      std::abort();
    }
  }
  void OnTokens(GenerateChunk chunk) override { tokens_ += chunk.tokens.size(); }
  void OnDone(const GenerateUsage&) override { End(); }
  void OnError(Error) override { End(); }
  std::size_t tokens() const { return tokens_; }

 private:
  void End() {
    ++terminal_calls_;
    --open_;
  }
  std::atomic<std::int64_t>& open_;
  std::atomic<std::size_t> tokens_{0};
  std::atomic<int> terminal_calls_{0};
};

GenerateRequest RandomRequest(std::mt19937_64& random, Nanos now) {
  GenerateRequest request;
  const int family = static_cast<int>(random() % 5);
  const auto shared = static_cast<int>(random() % 100);
  for (int i = 0; i < 1 + shared; ++i) request.prompt.push_back(TokenId{(family * 7 + i) % 61});
  for (auto i = random() % 40; i > 0; --i) {
    request.prompt.push_back(TokenId{static_cast<std::int32_t>(random() % 61)});
  }
  request.max_new_tokens = 1 + static_cast<int>(random() % 100);
  request.n = random() % 8 == 0 ? 1 + static_cast<int>(random() % 4) : 1;
  request.tier = random() % 3 == 0 ? Tier::kBatch : Tier::kInteractive;
  if (random() % 10 == 0) request.deadline = now + std::chrono::microseconds(random() % 20000);
  if (random() % 6 == 0) request.cache_salt = "tenant";
  if (random() % 6 == 0) request.use_prefix_cache = false;
  if (random() % 4 == 0) request.sampling.presence_penalty = 0.5f;
  if (random() % 4 == 0) request.logprobs = 2;
  request.sampling.top_p = random() % 2 == 0 ? 0.9f : 1.0f;
  return request;
}

std::unique_ptr<Engine> StartEngine(bool ring) {
  EngineOptions options;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 128;
  options.kv_type = kernels::KvType::kF32;
  options.kv_memory_bytes = 96 * PageBytes(FakeModel().kv_shape(options.kv_type));
  options.batch_window = std::chrono::microseconds(200);
  options.context_policy = ring ? ContextPolicy::kRing : ContextPolicy::kStop;
  auto engine = Engine::Start(options, std::make_unique<FakeModel>(), nullptr);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    std::exit(1);
  }
  return *std::move(engine);
}

bool CheckEmpty(Engine& engine, std::int64_t open, const char* phase) {
  const EngineStats stats = engine.Stats();
  std::printf(
      "%s: %llu requests, %llu finished, %llu cancelled, %llu failed, %llu steps, %llu "
      "preemptions, "
      "%llu prefix tokens, %llu pages moved; %u pages in use, %lld requests open\n",
      phase, static_cast<unsigned long long>(stats.requests_accepted),
      static_cast<unsigned long long>(stats.requests_finished),
      static_cast<unsigned long long>(stats.requests_cancelled),
      static_cast<unsigned long long>(stats.requests_failed),
      static_cast<unsigned long long>(stats.steps),
      static_cast<unsigned long long>(stats.preemptions),
      static_cast<unsigned long long>(stats.prefix_hits),
      static_cast<unsigned long long>(stats.pages_moved), stats.pages_used,
      static_cast<long long>(open));
  return stats.pages_used == 0 && open == 0 && stats.running == 0 && stats.waiting == 0;
}

bool KillClients(int count) {
  std::atomic<std::int64_t> open{0};
  auto engine = StartEngine(false);
  std::mt19937_64 random(3);
  for (int i = 0; i < count;) {
    std::vector<std::pair<RequestHandle, std::shared_ptr<CountingSink>>> streams;
    for (int k = 0; k < 16 && i < count; ++k, ++i) {
      auto sink = std::make_shared<CountingSink>(open);
      GenerateRequest request = RandomRequest(random, Nanos{});
      request.deadline.reset();
      request.n = 1;
      request.max_new_tokens = 150;
      streams.emplace_back(*engine->Submit(std::move(request), sink), sink);
    }
    for (auto& [handle, sink] : streams) {
      while (sink->tokens() == 0) std::this_thread::yield();  // mid-answer
      engine->Cancel(handle);
    }
  }
  engine->Drain(Nanos::max());
  return CheckEmpty(*engine, open, "killed clients");
}

bool MixedTraffic(int seconds, bool ring) {
  std::atomic<std::int64_t> open{0};
  const SteadyClock clock;
  auto engine = StartEngine(ring);
  const Nanos end = clock.Now() + std::chrono::seconds(seconds);
  std::vector<std::thread> clients;
  for (std::uint64_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937_64 random(client + 17);
      std::vector<RequestHandle> handles;
      while (clock.Now() < end) {
        if (open > 400) {
          std::this_thread::yield();
        } else {
          auto handle = engine->Submit(RandomRequest(random, clock.Now()),
                                       std::make_shared<CountingSink>(open));
          if (!handle) std::abort();
          handles.push_back(*handle);
        }
        if (random() % 3 == 0 && !handles.empty()) {
          engine->Cancel(handles[random() % handles.size()]);
        }
        if (handles.size() > 500) handles.erase(handles.begin(), handles.begin() + 250);
        if (random() % 64 == 0) (void)engine->Stats();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  engine->Drain(Nanos::max());
  return CheckEmpty(*engine, open, ring ? "mixed traffic, rings" : "mixed traffic");
}

}  // namespace
}  // namespace tare::engine

int main(int argc, char** argv) {
  using namespace tare::engine;
  const int seconds = argc > 1 ? std::max(2, std::atoi(argv[1])) : 10;
  const int clients = argc > 2 ? std::max(1, std::atoi(argv[2])) : 10000;
  const bool ok = KillClients(clients) && MixedTraffic(seconds / 2, false) &&
                  MixedTraffic(seconds - seconds / 2, true);
  std::printf("%s\n", ok ? "clean" : "LEAK");
  return ok ? 0 : 1;
}
