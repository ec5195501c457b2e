// What batching, sharing and paging are worth, each against the same engine without it:
//   engine_bench [--model M] [--dtype D] [--threads N] [--experiment NAME]
//
//   batching   chats of 512 tokens in and 128 out on average, 1 to 32 at a time: continuous
//   batching
//              against one at a time, and against batches of 32 that start and end together
//   prefix     32 users whose prompts share 1,000 tokens: time to first token with and without the
//              prefix cache
//   compaction pages scattered by requests that end at random: how many move, what goes back to the
//              operating system, and the longest a step was held up by it
//   pages      memory of 32 half-filled sequences of full length, against reserving the length
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "base/check.h"
#include "engine/local_model.h"
#include "engine/waiting_sink.h"

namespace tare::engine {
namespace {

struct Arguments {
  std::string model;
  std::string dtype = "int8";
  std::string experiment = "all";
  int threads = 0;
};

class Client final : public WaitingSink {
 public:
  const GenerateUsage& WaitForUsage() {
    if (const Status ended = Wait(); !ended) {
      std::fprintf(stderr, "%s\n", ended.error().message.c_str());
      std::exit(1);
    }
    return usage();
  }
};

LocalModel Load(const Arguments& arguments, int max_num_seqs, int max_model_len) {
  LocalModelOptions options;
  options.model = arguments.model;
  options.dtype = arguments.dtype;
  options.threads = arguments.threads;
  options.engine.max_num_seqs = max_num_seqs;
  options.engine.max_model_len = max_model_len;
  auto local = LoadLocalModel(std::move(options));
  if (!local) {
    std::fprintf(stderr, "%s\n", local.error().message.c_str());
    std::exit(3);
  }
  return *std::move(local);
}

std::vector<GenerateRequest> Chats(int count, int vocab) {
  std::mt19937_64 random(42);
  std::vector<GenerateRequest> chats(static_cast<std::size_t>(count));
  for (GenerateRequest& chat : chats) {
    for (int i = 0; i < 512; ++i) {
      chat.prompt.push_back(
          TokenId{static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocab))});
    }
    chat.max_new_tokens = 64 + static_cast<int>(random() % 129);  // 128 on average
    chat.ignore_eos = true;
    chat.seed = random();
  }
  return chats;
}

struct Outcome {
  double tokens_per_s = 0.0;
  double p99_s = 0.0;
  double ttft_p50_s = 0.0;
};

Outcome Summarise(std::vector<GenerateUsage> usages, double seconds) {
  Outcome outcome;
  std::vector<double> total, ttft;
  for (const GenerateUsage& usage : usages) {
    outcome.tokens_per_s += usage.generated_tokens / seconds;
    total.push_back(ToSeconds(usage.total));
    ttft.push_back(ToSeconds(usage.first_token));
  }
  std::sort(total.begin(), total.end());
  std::sort(ttft.begin(), ttft.end());
  outcome.p99_s = total[static_cast<std::size_t>(0.99 * static_cast<double>(total.size() - 1))];
  outcome.ttft_p50_s = ttft[ttft.size() / 2];
  return outcome;
}

// `users` clients, each asking its next question when the last one is answered. With `together`,
// a batch begins only when the one before has ended.
Outcome Serve(Engine& engine, const std::vector<GenerateRequest>& chats, int users, bool together) {
  const SteadyClock clock;
  std::vector<GenerateUsage> usages;
  const Nanos begin = clock.Now();
  if (together) {
    for (std::size_t at = 0; at < chats.size(); at += static_cast<std::size_t>(users)) {
      std::vector<std::shared_ptr<Client>> batch;
      for (std::size_t i = at; i < std::min(chats.size(), at + static_cast<std::size_t>(users));
           ++i) {
        batch.push_back(std::make_shared<Client>());
        TARE_CHECK(engine.Submit(chats[i], batch.back()).has_value());
      }
      Nanos longest{};
      for (const auto& client : batch) longest = std::max(longest, client->WaitForUsage().total);
      for (const auto& client : batch) {
        GenerateUsage usage = client->WaitForUsage();
        usage.total = longest;  // answers leave together
        usages.push_back(usage);
      }
    }
  } else {
    std::mutex mutex;
    std::size_t next = 0;
    std::vector<std::thread> threads;
    for (int user = 0; user < users; ++user) {
      threads.emplace_back([&] {
        while (true) {
          std::size_t mine;
          {
            std::lock_guard lock(mutex);
            if (next == chats.size()) return;
            mine = next++;
          }
          auto client = std::make_shared<Client>();
          TARE_CHECK(engine.Submit(chats[mine], client).has_value());
          const GenerateUsage usage = client->WaitForUsage();
          std::lock_guard lock(mutex);
          usages.push_back(usage);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  return Summarise(std::move(usages), ToSeconds(clock.Now() - begin));
}

void Batching(const Arguments& arguments) {
  std::printf("\nbatching: 512 tokens in, 64 to 192 out\n%-28s %6s %10s %9s %10s\n", "engine",
              "users", "tokens/s", "P99 s", "TTFT P50 s");
  const auto print = [](const char* name, int users, const Outcome& o) {
    std::printf("%-28s %6d %10.1f %9.2f %10.3f\n", name, users, o.tokens_per_s, o.p99_s,
                o.ttft_p50_s);
    std::fflush(stdout);
  };
  {
    const LocalModel local = Load(arguments, 1, 1024);
    const int vocab = local.engine->config().vocab;
    print("one at a time", 16, Serve(*local.engine, Chats(16, vocab), 16, false));
  }
  const LocalModel local = Load(arguments, 32, 1024);
  const int vocab = local.engine->config().vocab;
  for (const int users : {1, 4, 8, 16, 32}) {
    // Fresh prompts each time would be equal ones: they are cached, so salt them apart.
    std::vector<GenerateRequest> chats = Chats(std::max(8, 2 * users), vocab);
    for (GenerateRequest& chat : chats) chat.cache_salt = "continuous" + std::to_string(users);
    print("continuous batching", users, Serve(*local.engine, chats, users, false));
  }
  std::vector<GenerateRequest> chats = Chats(64, vocab);
  for (GenerateRequest& chat : chats) chat.cache_salt = "static";
  print("batches of 32 together", 32, Serve(*local.engine, chats, 32, true));
}

void Prefix(const Arguments& arguments) {
  std::printf(
      "\nprefix: 32 users at once, 1,000 common tokens and 16 of their own\n%-28s %10s %10s\n",
      "prefix cache", "TTFT P50 s", "worst s");
  const LocalModel local = Load(arguments, 32, 2048);
  std::mt19937_64 random(7);
  const auto token = [&] {
    return TokenId{static_cast<std::int32_t>(
        random() % static_cast<std::uint64_t>(local.engine->config().vocab))};
  };
  std::vector<TokenId> common;
  for (int i = 0; i < 1000; ++i) common.push_back(token());
  for (const char* mode : {"off", "cold", "warm"}) {
    std::vector<std::shared_ptr<Client>> clients;
    for (int user = 0; user < 32; ++user) {
      GenerateRequest request;
      request.prompt = common;
      for (int i = 0; i < 16; ++i) request.prompt.push_back(token());
      request.max_new_tokens = 8;
      request.ignore_eos = true;
      request.use_prefix_cache = std::string(mode) != "off";
      clients.push_back(std::make_shared<Client>());
      TARE_CHECK(local.engine->Submit(std::move(request), clients.back()).has_value());
    }
    std::vector<double> ttft;
    for (const auto& client : clients)
      ttft.push_back(ToSeconds(client->WaitForUsage().first_token));
    std::sort(ttft.begin(), ttft.end());
    std::printf("%-28s %10.3f %10.3f\n", mode, ttft[16], ttft.back());
    std::fflush(stdout);
  }
}

void Compaction(const Arguments& arguments) {
  LocalModelOptions options;
  options.model = arguments.model;
  options.dtype = arguments.dtype;
  options.threads = arguments.threads;
  options.engine.max_num_seqs = 64;
  options.engine.max_model_len = 1024;
  options.engine.prefix_cache = false;  // cached pages would keep the pool full
  auto local = LoadLocalModel(std::move(options));
  if (!local) {
    std::fprintf(stderr, "%s\n", local.error().message.c_str());
    std::exit(3);
  }
  Engine& engine = *local->engine;
  std::mt19937_64 random(5);
  const auto vocab = static_cast<std::uint64_t>(engine.config().vocab);
  double worst_share = 0.0;
  std::uint32_t most_pages = 0;
  for (int wave = 0; wave < 4; ++wave) {
    // Short and long answers side by side: the short ones leave holes between the long ones' pages.
    std::vector<std::shared_ptr<Client>> clients;
    for (int i = 0; i < 64; ++i) {
      GenerateRequest request;
      const std::uint64_t length = 16 + random() % 240;
      for (std::uint64_t k = 0; k < length; ++k) {
        request.prompt.push_back(TokenId{static_cast<std::int32_t>(random() % vocab)});
      }
      request.max_new_tokens = i % 8 == 0 ? 160 : 4 + static_cast<int>(random() % 24);
      request.ignore_eos = true;
      clients.push_back(std::make_shared<Client>());
      TARE_CHECK(engine.Submit(std::move(request), clients.back()).has_value());
    }
    for (const auto& client : clients) {
      client->WaitForUsage();
      const EngineStats stats = engine.Stats();
      worst_share = std::max(worst_share, stats.stranded_share);
      most_pages = std::max(most_pages, stats.pages_used);
    }
  }
  const EngineStats stats = engine.Stats();
  std::printf(
      "\ncompaction: 4 waves of 64 sequences, 1 in 8 long\npages of %zu KiB, at most %u used; "
      "moved %llu, given back %llu; highest share of stranded pages seen %.0f %%\n"
      "steps %llu, %.1f ms each on average; upkeep %.3f ms in all, longest in one step %.3f ms\n",
      stats.page_bytes >> 10, most_pages, static_cast<unsigned long long>(stats.pages_moved),
      static_cast<unsigned long long>(stats.pages_returned), 100.0 * worst_share,
      static_cast<unsigned long long>(stats.steps),
      1e3 * stats.step_seconds / static_cast<double>(stats.steps), 1e3 * stats.upkeep_seconds,
      1e3 * stats.longest_upkeep_seconds);
}

void Pages() {
  // Bookkeeping only: what the pages of 32 sequences hold that are, on average, half full.
  constexpr int kLength = 8192, kSequences = 32;
  std::uint64_t tokens = 0, paged = 0;
  for (int i = 0; i < kSequences; ++i) {
    const auto length =
        static_cast<std::uint64_t>((2 * i + 1) * kLength / (2 * kSequences) + i % 16);
    tokens += length;
    paged +=
        (length + kernels::kTokensPerPage - 1) / kernels::kTokensPerPage * kernels::kTokensPerPage;
  }
  const std::uint64_t reserved = std::uint64_t{kLength} * kSequences;
  std::printf(
      "\npages: %d sequences of up to %d tokens, half of it on average, %llu tokens held\n"
      "reserving the length: %llu slots, %.1f %% unused\npages of 16: %llu slots, %.2f %% unused; "
      "%.2f times as many sequences in the same memory\n",
      kSequences, kLength, static_cast<unsigned long long>(tokens),
      static_cast<unsigned long long>(reserved),
      100.0 * static_cast<double>(reserved - tokens) / static_cast<double>(reserved),
      static_cast<unsigned long long>(paged),
      100.0 * static_cast<double>(paged - tokens) / static_cast<double>(paged),
      static_cast<double>(reserved) / static_cast<double>(paged));
}

}  // namespace
}  // namespace tare::engine

int main(int argc, char** argv) {
  using namespace tare::engine;
  Arguments arguments;
  CLI::App app("What batching, sharing and paging are worth.");
  app.add_option("--model", arguments.model, "A .gguf file; nothing: the default model");
  app.add_option("--dtype", arguments.dtype, "auto, f32, bf16, int8, int4")->capture_default_str();
  app.add_option("--threads", arguments.threads, "0: one per usable core");
  app.add_option("--experiment", arguments.experiment, "batching, prefix, pages, compaction or all")
      ->check(CLI::IsMember({"batching", "prefix", "pages", "compaction", "all"}));
  CLI11_PARSE(app, argc, argv);
  const auto wanted = [&](const char* name) {
    return arguments.experiment == "all" || arguments.experiment == name;
  };
  if (wanted("pages")) Pages();
  if (wanted("compaction")) Compaction(arguments);
  if (wanted("prefix")) Prefix(arguments);
  if (wanted("batching")) Batching(arguments);
  return 0;
}
