// What batching, sharing and paging are worth, each against the same engine without it:
//   engine_bench [--model M] [--dtype D] [--threads N] [--experiment NAME] [--users A,B]
//                [--rounds N]
//
//   batching    chats of 512 tokens in and 128 out on average, 1 to 32 at a time: one after the
//               other, batched continuously, and in batches of 32 that begin and end together
//   prefix      32 users whose prompts share 1,000 tokens: time to first token with and without
//               the prefix cache
//   compaction  pages scattered by requests that end at random: how many move, what goes back to
//               the operating system, and the longest a step was held up by it (no model: memory
//               of SmolLM2's size, in processor time)
//   speculation answers that repeat their prompt (text, code, a passage looked up) and free chat:
//               decode with and without drafts, by turns in one engine; the answers must be equal
//   pages       memory of 32 half-filled sequences of full length, against reserving the length;
//               and how many run at a time in that memory when they end half-way
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>

#include "base/check.h"
#include "engine/cpu_executor.h"
#include "engine/local_model.h"
#include "engine/scheduler.h"
#include "engine/waiting_sink.h"

namespace tare::engine {
namespace {

struct Arguments {
  std::string model;
  std::string dtype = "int8";
  std::string experiment = "all";
  int threads = 0;
  std::vector<int> users;  // empty: as the experiment has them
  bool processor_time = false;
  std::string task;  // speculation: only tasks whose name contains this
  int rounds = 2;    // chats a user; repetitions of speculation
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

// Processor time of the thread that asks: what other programs do meanwhile does not count.
class ThreadClock final : public Clock {
 public:
  Nanos Now() const override {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + Nanos(time.tv_nsec);
  }
};

LocalModel Load(const Arguments& arguments, int max_num_seqs, int max_model_len, int drafts = 0) {
  LocalModelOptions options;
  options.model = arguments.model;
  options.dtype = arguments.dtype;
  options.threads = arguments.threads;
  options.engine.max_num_seqs = max_num_seqs;
  options.engine.max_model_len = max_model_len;
  options.engine.speculation.most = drafts;
  static const ThreadClock thread_clock;
  if (arguments.processor_time) {
    options.engine.clock = &thread_clock;
    options.engine.batch_window = Nanos{};  // this clock stands still while the thread waits
  }
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
    chat.speculate = false;  // what batching is worth by itself
    chat.seed = random();
  }
  return chats;
}

struct Outcome {
  double tokens_per_s = 0.0;
  double p50_s = 0.0;
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
  outcome.p50_s = total[total.size() / 2];
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
  std::printf("\nbatching: 512 tokens in, 64 to 192 out\n%-28s %6s %6s %10s %9s %9s %10s\n",
              "engine", "users", "chats", "tokens/s", "P50 s", "P99 s", "TTFT P50 s");
  const LocalModel single = Load(arguments, 1, 1024);
  const LocalModel local = Load(arguments, 32, 1024);
  const int vocab = local.engine->config().vocab;
  int run = 0;
  const auto serve = [&](const char* name, const LocalModel& model, int users, int count,
                         bool together) {
    // Every run has the same chats; the salt keeps them apart in the prefix cache.
    std::vector<GenerateRequest> chats = Chats(count, vocab);
    for (GenerateRequest& chat : chats) chat.cache_salt = std::to_string(run);
    ++run;
    const Outcome o = Serve(*model.engine, chats, users, together);
    std::printf("%-28s %6d %6d %10.1f %9.2f %9.2f %10.3f\n", name, users, count, o.tokens_per_s,
                o.p50_s, o.p99_s, o.ttft_p50_s);
    std::fflush(stdout);
    return o;
  };
  const std::vector<int> counts =
      arguments.users.empty() ? std::vector<int>{1, 4, 8, 16, 32} : arguments.users;
  for (const int users : counts) {
    const int chats = std::max(users, 4) * arguments.rounds;
    // One at a time makes the same tokens per second however many wait.
    const Outcome alone = serve("one at a time", single, users, std::min(chats, 8), false);
    const Outcome batched = serve("continuous batching", local, users, chats, false);
    std::printf("  %.2f times the tokens/s of one at a time%s\n",
                batched.tokens_per_s / alone.tokens_per_s,
                users == 16 ? " (asked: at least 4)" : "");
    if (users != 32) continue;
    const Outcome together = serve("batches of 32 together", local, users, chats, true);
    std::printf(
        "  continuous: %.2f times their tokens/s (asked: more than 1), P99 %.2f of theirs (asked: "
        "less than 1)\n",
        batched.tokens_per_s / together.tokens_per_s, batched.p99_s / together.p99_s);
  }
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
  double without = 0.0;
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
    std::printf("%-28s %10.3f %10.3f", mode, ttft[16], ttft.back());
    if (without == 0.0) {
      without = ttft[16];
      std::printf("\n");
    } else {
      std::printf("  P50 %.1f times lower (asked: at least 10)\n", without / ttft[16]);
    }
    std::fflush(stdout);
  }
}

// Keys and values of SmolLM2's size and no computation: what remains of a step is memory.
class PagesOnlyModel final : public model::LanguageModel {
 public:
  PagesOnlyModel() {
    config_.family = config_.name = "pages";
    config_.layers = 30;
    config_.heads = config_.kv_heads = 3;
    config_.head_dim = 64;
    config_.hidden = 192;
    config_.vocab = 256;
    config_.context_length = 1024;
  }
  const model::ModelConfig& config() const override { return config_; }
  std::size_t weight_bytes() const override { return 0; }
  kernels::WeightType weight_type() const override { return kernels::WeightType::kF32; }
  kernels::KvShape kv_shape(kernels::KvType type) const override {
    return {config_.layers, config_.kv_heads, config_.head_dim, type};
  }
  void Forward(const model::ForwardInput& input, kernels::KvPages& kv,
               std::span<float> logits) override {
    zeros_.resize(std::max(zeros_.size(), input.tokens.size() * 192));
    for (int layer = 0; layer < config_.layers; ++layer) {
      kv.Write(layer, input.sequences, zeros_.data(), zeros_.data(), pool_);
    }
    std::fill(logits.begin(), logits.end(), 0.0f);
  }

 private:
  model::ModelConfig config_;
  std::vector<float> zeros_;
  ThreadPool pool_{1};
};

void Compaction() {
  const ThreadClock clock;
  EngineOptions options;
  options.max_num_seqs = 64;
  options.prefix_cache = false;  // cached pages would keep the pool full
  options.speculation = {};
  options.batch_window = Nanos{};
  options.clock = &clock;
  const auto started = Engine::Start(options, std::make_unique<PagesOnlyModel>(), nullptr);
  TARE_CHECK(started.has_value());
  Engine& engine = **started;
  std::mt19937_64 random(5);
  const auto vocab = static_cast<std::uint64_t>(engine.config().vocab);
  double worst_share = 0.0;
  std::uint32_t most_pages = 0;
  constexpr int kWaves = 20;
  for (int wave = 0; wave < kWaves; ++wave) {
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
      "\ncompaction: %d waves of 64 sequences, 1 in 8 long\npages of %zu KiB, at most %u used; "
      "moved %llu, given back %llu; highest share of stranded pages seen %.0f %%\n"
      "steps %llu; upkeep %.3f ms in all, longest in one step %.3f ms of the thread's time (asked: "
      "at most 1)\n",
      kWaves, stats.page_bytes >> 10, most_pages,
      static_cast<unsigned long long>(stats.pages_moved),
      static_cast<unsigned long long>(stats.pages_returned), 100.0 * worst_share,
      static_cast<unsigned long long>(stats.steps), 1e3 * stats.upkeep_seconds,
      1e3 * stats.longest_upkeep_seconds);
}

// What is asked, and what the answer should make of it.
struct Task {
  const char* kind;
  const char* prompt;
};

constexpr Task kTasks[] = {
    {"repeat a text",
     "Repeat the following text word for word, without any comment.\n\nThe lighthouse keeper "
     "climbed "
     "the stairs every evening at six. He carried a lamp, a loaf of bread and a small radio. From "
     "the "
     "top he could see the harbour, the old fort and the islands to the west. When the fog came in "
     "from the sea, he lit the great lamp and rang the bell every two minutes until the morning. "
     "In "
     "forty years he had never missed a night, and the fishermen said that no ship had been lost "
     "on "
     "the rocks since he had come to the island."},
    {"correct code",
     "Here is a Python function. Write the whole function again, with the variable `total` renamed "
     "to "
     "`result` and nothing else changed.\n\n```python\ndef summarize(values, weights):\n    total "
     "= 0\n"
     "    count = 0\n    for value, weight in zip(values, weights):\n        if weight < 0:\n"
     "            raise ValueError(\"weights must not be negative\")\n        total = total + "
     "value * "
     "weight\n        count = count + weight\n    if count == 0:\n        return 0\n    total = "
     "total / "
     "count\n    return total\n```"},
    {"answer from a passage",
     "Passage: The Amber Line opened in 1927 and was the first railway in the region to use "
     "electric "
     "locomotives. It connected the port of Lindow with the mining town of Graves End, a distance "
     "of "
     "84 kilometres. The line was closed in 1968, but the section between Lindow and Harrow Bridge "
     "was "
     "opened again in 1994 as a museum railway run by volunteers.\n\nQuote the sentences of the "
     "passage "
     "that say what the line connected and when it was closed and opened again."},
    {"summarise",
     "Summarise in three sentences, using the words of the text.\n\nThe city council decided on "
     "Tuesday "
     "to build a new tram line from the central station to the university hospital. The line will "
     "be "
     "seven kilometres long and have eleven stops. Construction begins next spring and is expected "
     "to "
     "take four years. The cost is estimated at 310 million, of which the state pays 60 percent. "
     "Residents along Park Street complained that trees would have to be felled; the council "
     "promised "
     "to plant two new trees for each tree that is felled."},
    {"free chat", "Why is the sky blue, and why is it red in the evening?"},
    {"free chat", "Tell me a short story about a dragon who is afraid of the dark."},
    {"free chat", "Give me some advice for my first day at a new job."},
};

struct Spoken {
  double seconds = 0.0;  // of decoding
  int tokens = 0;        // decoded
  GenerateUsage usage;
  std::vector<TokenId> answer;
};

class Listener final : public WaitingSink {
 public:
  void OnTokens(GenerateChunk chunk) override {
    for (const GeneratedToken& token : chunk.tokens) answer_.push_back(token.id);
  }
  const std::vector<TokenId>& answer() const { return answer_; }  // valid after Wait

 private:
  std::vector<TokenId> answer_;
};

// `users` of them at once.
Spoken Ask(Engine& engine, GenerateRequest request, bool speculate, int users) {
  request.speculate = speculate;
  std::vector<std::shared_ptr<Listener>> listeners;
  for (int user = 0; user < users; ++user) {
    listeners.push_back(std::make_shared<Listener>());
    TARE_CHECK(engine.Submit(request, listeners.back()).has_value());
  }
  Spoken spoken;
  Nanos first = Nanos::max(), last{};
  for (const auto& listener : listeners) {
    TARE_CHECK(listener->Wait().has_value());
    const GenerateUsage& usage = listener->usage();
    first = std::min(first, usage.first_token);
    last = std::max(last, usage.total);
    spoken.tokens += usage.generated_tokens - 1;
    spoken.usage.drafted_tokens += usage.drafted_tokens;
    spoken.usage.accepted_drafts += usage.accepted_drafts;
  }
  spoken.seconds = ToSeconds(last - first);
  spoken.answer = listeners[0]->answer();
  return spoken;
}

void Speculation(const Arguments& arguments) {
  const LocalModel local = Load(arguments, 8, 2048, kMostDrafts);
  std::printf(
      "\nspeculation: greedy and sampled answers of up to 160 tokens\n"
      "%-22s %8s %6s %12s %12s %7s %9s %6s\n",
      "task", "sampling", "users", "plain tok/s", "drafts tok/s", "ratio", "accepted", "equal");
  const std::vector<int> counts =
      arguments.users.empty() ? std::vector<int>{1, 4} : arguments.users;
  for (const int users : counts) {
    for (const Task& task : kTasks) {
      if (std::string_view(task.kind).find(arguments.task) == std::string_view::npos) continue;
      for (const bool sampled : {false, true}) {
        model::ChatInput input;
        const std::string messages =
            nlohmann::json::array({{{"role", "user"}, {"content", task.prompt}}}).dump();
        input.messages_json = messages;
        GenerateRequest request;
        request.prompt = local.text->EncodeChat(input).value();
        request.max_new_tokens = 160;
        request.sampling.temperature = sampled ? 0.4f : 0.0f;
        request.sampling.top_p = 0.9f;
        request.seed = 11;
        (void)Ask(*local.engine, request, false, users);  // the prompt is cached from here on
        std::vector<double> plain, drafts, ratios;
        bool equal = true;
        Spoken last;
        for (int round = 0; round < arguments.rounds; ++round) {
          const Spoken without = Ask(*local.engine, request, false, users);
          last = Ask(*local.engine, request, true, users);
          plain.push_back(without.tokens / without.seconds);
          drafts.push_back(last.tokens / last.seconds);
          ratios.push_back(drafts.back() / plain.back());
          equal = equal && without.answer == last.answer;
        }
        const auto median = [](std::vector<double>& values) {
          std::sort(values.begin(), values.end());
          return values[values.size() / 2];
        };
        std::printf("%-22s %8s %6d %12.1f %12.1f %7.2f %4d/%-4d %6s\n", task.kind,
                    sampled ? "0.4" : "greedy", users, median(plain), median(drafts),
                    median(ratios), last.usage.accepted_drafts, last.usage.drafted_tokens,
                    equal ? "yes" : "NO");
        std::fflush(stdout);
      }
    }
  }
}

// Memory this process holds at present, in bytes.
double ResidentBytes() {
  double total = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%lf %lf", &total, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// The engine's scheduler and its KV memory, without a model: every page a step would write is
// written, so that what the system hands out is what answers would make it hand out.
void Pages() {
  constexpr int kLength = 8192, kSequences = 32;
  const kernels::KvShape shape{
      .layers = 30, .kv_heads = 3, .head_dim = 64, .type = kernels::KvType::kInt8};
  SchedulerOptions options;
  options.pool.pages = kLength / kernels::kTokensPerPage * kSequences;
  options.pool.pages_per_slab = 46;  // 8 MiB, as the engine's
  options.max_num_seqs = kSequences;
  options.max_num_batched_tokens = 8192;
  options.max_model_len = kLength;
  options.prefix_cache = false;
  Scheduler scheduler = Scheduler::Create(options).value();
  kernels::KvPages kv = kernels::KvPages::Create(shape, options.pool.pages).value();
  std::uint64_t tokens = 0;
  for (int i = 0; i < kSequences; ++i) {
    SequenceSpec spec;
    spec.id = SequenceId{static_cast<std::uint64_t>(i)};
    spec.prompt.resize(
        static_cast<std::size_t>((2 * i + 1) * kLength / (2 * kSequences) + i % 16 - 8));
    spec.max_new_tokens = 1000;
    tokens += spec.prompt.size();
    TARE_CHECK(scheduler.Submit(std::move(spec), Nanos{}).has_value());
  }
  const double before = ResidentBytes();
  for (bool prompts = true; prompts;) {
    const StepPlan plan = scheduler.Plan(Nanos{});
    std::size_t sampled = 0;
    prompts = false;
    for (const PlannedSlice& slice : plan.slices) {
      for (std::uint32_t page = slice.start / kernels::kTokensPerPage; page < slice.num_pages;
           ++page) {
        kv.Copy(PageId{options.pool.pages - 1}, plan.page_table[slice.first_page + page]);
      }
      sampled += slice.wants_logits;
      prompts = prompts || slice.num_tokens > 1;
    }
    scheduler.Commit(plan, std::vector<SampledToken>(sampled));
  }
  const SchedulerStats stats = scheduler.Stats();
  TARE_CHECK(stats.running == kSequences);
  const double held = ResidentBytes() - before;
  const double per_token = static_cast<double>(kernels::KvBytesPerToken(shape));
  const double reserved = per_token * kLength * kSequences;
  const double needed = per_token * static_cast<double>(tokens);
  std::printf(
      "\npages: %d sequences of up to %d tokens, half of it on average, %llu tokens\n"
      "reserving the length: %.0f MiB, of which %.0f MiB hold nothing\n"
      "pages of %d, as resident: %.0f MiB, of which %.0f MiB hold nothing (%.1f %% less waste; "
      "unused slots %.2f %%); %.2f times as many sequences in the same memory\n",
      kSequences, kLength, static_cast<unsigned long long>(tokens), reserved / (1 << 20),
      (reserved - needed) / (1 << 20), kernels::kTokensPerPage, held / (1 << 20),
      (held - needed) / (1 << 20), 100.0 * (1.0 - (held - needed) / (reserved - needed)),
      100.0 * stats.unused_slot_share, reserved / held);
  std::printf("asked: at least 62 %% less waste\n");
}

// The same memory under load: answers that end half-way to the limit on average (uniformly from a
// quarter of it to three quarters), as many at a time as the scheduler finds room for. A sequence
// that ends half full is emptier before, so that more than twice as many run; how many depends on
// how much of it is there from the beginning, the prompt.
void PagesUnderLoad() {
  constexpr int kLength = 8192, kSequences = 32, kWarmUp = 10000, kSteps = 30000;
  std::printf(
      "\npages under load: memory of %d sequences of %d tokens, sequences that end at 2,048 to "
      "6,144\n%-22s %12s %22s %14s\n",
      kSequences, kLength, "prompt's share", "at a time", "times a reservation's",
      "computed twice");
  for (const double share : {0.25, 0.5, 2.0 / 3.0, 0.8}) {
    SchedulerOptions options;
    options.pool.pages = kLength / kernels::kTokensPerPage * kSequences;
    options.max_num_seqs = 1000;
    options.max_num_batched_tokens = 2048;
    options.max_model_len = kLength;
    options.prefix_cache = false;
    Scheduler scheduler = Scheduler::Create(options).value();
    std::mt19937_64 random(11);
    std::uint64_t submitted = 0, ended = 0, rows = 0, sequence_steps = 0;
    for (int step = 0; step < kWarmUp + kSteps || !scheduler.idle(); ++step) {
      // A few wait at all times, until the last ones may finish.
      while (step < kWarmUp + kSteps && submitted - ended < scheduler.running() + 4) {
        const int length = kLength / 4 + static_cast<int>(random() % (kLength / 2));
        SequenceSpec spec;
        spec.id = SequenceId{++submitted};
        spec.prompt.resize(static_cast<std::size_t>(share * length));
        spec.max_new_tokens = length - static_cast<int>(spec.prompt.size());
        rows += static_cast<std::uint64_t>(length) - 1;  // the last token is only sampled
        TARE_CHECK(scheduler.Submit(std::move(spec), Nanos(submitted)).has_value());
      }
      const StepPlan plan = scheduler.Plan(Nanos(submitted));
      std::size_t sampled = 0;
      for (const PlannedSlice& slice : plan.slices) sampled += slice.wants_logits;
      ended += scheduler.Commit(plan, std::vector<SampledToken>(sampled)).size();
      if (step >= kWarmUp && step < kWarmUp + kSteps) sequence_steps += scheduler.running();
    }
    const double running = static_cast<double>(sequence_steps) / kSteps;
    const SchedulerStats stats = scheduler.Stats();
    std::printf(
        "%-22.2f %12.1f %22.2f %12.0f %%\n", share, running, running / kSequences,
        100.0 * (1.0 - static_cast<double>(rows) / static_cast<double>(stats.computed_tokens)));
    std::fflush(stdout);
  }
  std::printf("asked: at least 2.3 times\n");
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
  app.add_option("--users", arguments.users, "batching, speculation: users at once, e.g. 1,16")
      ->delimiter(',')
      ->check(CLI::Range(1, 32));
  app.add_flag(
      "--processor-time", arguments.processor_time,
      "speculation, with --threads 1: time by the step thread's processor time, which other "
      "programs do not disturb");
  app.add_option("--task", arguments.task, "speculation: only tasks named like this, e.g. chat");
  app.add_option("--rounds", arguments.rounds, "Chats of each user; repetitions of speculation")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--experiment", arguments.experiment,
                 "batching, prefix, pages, compaction, speculation or all")
      ->check(CLI::IsMember({"batching", "prefix", "pages", "compaction", "speculation", "all"}));
  CLI11_PARSE(app, argc, argv);
  const auto wanted = [&](const char* name) {
    return arguments.experiment == "all" || arguments.experiment == name;
  };
  if (wanted("pages")) {
    Pages();
    PagesUnderLoad();
  }
  if (wanted("compaction")) Compaction();
  if (wanted("prefix")) Prefix(arguments);
  if (wanted("speculation")) Speculation(arguments);
  if (wanted("batching")) Batching(arguments);
  return 0;
}
