#include "soak_traffic.h"

#include <fmt/format.h>

#include <thread>

#include "engine/cpu_executor.h"
#include "engine/fake_model.h"
#include "soak_listener.h"

namespace tare::engine::soak {
namespace {

constexpr int kClients = 3;
// Requests at a time: in floods, and in the ebbs between them, which leave pages stranded.
constexpr std::int64_t kFlood = 150, kEbb = 6;

// Prompts of few families, so that many begin alike; text that repeats itself, so that guesses are
// often right.
GenerateRequest RandomRequest(Random& random, const World& world, Nanos now) {
  GenerateRequest r;
  const int family = Below(random, 5), few = 1 + Below(random, 6);
  const int longest = world.window - 1;
  const int shared = Below(random, longest), own = Below(random, 1 + (longest - shared) / 2);
  for (int i = 0; i < 1 + shared; ++i) r.prompt.push_back(TokenId{(family * 7 + i % 16) % 60});
  for (int i = 0; i < own; ++i) {
    r.prompt.push_back(TokenId{OneIn(random, 3) ? Below(random, world.vocab) : i % few});
  }
  r.prompt.resize(std::min(r.prompt.size(), static_cast<std::size_t>(longest)));
  const int room = world.ring ? 2 * world.window : world.window - static_cast<int>(r.prompt.size());
  r.max_new_tokens = 1 + Below(random, room);
  if (!world.ring && OneIn(random, 8)) r.max_new_tokens.reset();
  if (r.max_new_tokens && OneIn(random, 4)) r.min_new_tokens = Below(random, *r.max_new_tokens);
  r.pinned_tokens = OneIn(random, 2) ? Below(random, 40) : 0;
  r.ignore_eos = OneIn(random, 3);
  if (OneIn(random, 5)) r.stop_tokens = {TokenId{Below(random, world.vocab)}};
  if (world.engine->text() && OneIn(random, 3)) r.stop = {"ab", "é", std::string(30, 'x')};
  if (!OneIn(random, 3)) {
    for (int i = 0; i < few; ++i) r.sampling.logit_bias.push_back({TokenId{i}, 40.0f});
  }
  r.sampling.temperature = OneIn(random, 3) ? 0.0f : 0.1f * static_cast<float>(Below(random, 20));
  if (OneIn(random, 3)) r.sampling.top_p = 0.9f;
  if (OneIn(random, 3)) r.sampling.top_k = 1 + Below(random, 20);
  if (OneIn(random, 4)) r.sampling.min_p = 0.05f;
  if (OneIn(random, 4)) r.sampling.presence_penalty = 0.5f;
  if (OneIn(random, 4)) r.sampling.frequency_penalty = -0.2f;
  if (OneIn(random, 4)) r.sampling.repetition_penalty = 1.1f;
  if (OneIn(random, 2)) r.seed = random();
  if (OneIn(random, 3)) r.logprobs = Below(random, 6);
  if (OneIn(random, 6)) r.n = 1 + Below(random, 4);
  if (OneIn(random, 3)) r.tier = Tier::kBatch;
  if (OneIn(random, 8)) r.deadline = now + std::chrono::microseconds(Below(random, 50000));
  if (OneIn(random, 4)) r.cache_salt = fmt::format("tenant {}", Below(random, 3));
  if (OneIn(random, 8)) r.use_prefix_cache = false;
  if (OneIn(random, 5)) r.speculate = false;
  if (OneIn(random, 2)) r.adapter = world.adapters->Find(fmt::format("a{}", Below(random, 3)));
  return r;
}

// One that can be asked again and again: its seed is given, it fits the window, it does not hurry.
GenerateRequest RepeatableRequest(Random& random, const World& world) {
  GenerateRequest r = RandomRequest(random, world, {});
  r.prompt.resize(std::min(r.prompt.size(), std::size_t{28}));
  r.max_new_tokens = 8 + Below(random, 24);
  r.min_new_tokens = Below(random, 8);
  r.seed = random();
  r.logprobs = 2;
  r.deadline.reset();
  r.adapter = nullptr;
  return r;
}

Tally TallyOf(const Ledger& ledger, const EngineStats& stats) {
  Tally tally;
  tally.answers = ledger.answers;
  tally.cancelled = ledger.cancelled;
  tally.failed = ledger.failed;
  tally.refused = ledger.refused;
  tally.repeated = ledger.repeated;
  tally.adapters = ledger.adapters;
  tally.vectors = ledger.vectors;
  tally.preemptions = stats.preemptions;
  tally.accepted_drafts = stats.accepted_drafts;
  tally.prefix_hits = stats.prefix_hits;
  tally.pages_moved = stats.pages_moved;
  tally.pages_recycled = stats.pages_recycled;
  return tally;
}

struct Repeatable {
  GenerateRequest request;
  std::vector<Heard> first;
};

class Scene {
 public:
  Scene(World world, std::uint64_t seed) : world_(std::move(world)), random_(seed) {}

  Tally Run(Nanos length);

 private:
  void LearnRepeatables();
  void Client(std::uint64_t seed);
  void Attendant(std::uint64_t seed);
  void ChangeAdapters(Random& random);
  void Embed(Random& random);

  struct Live {
    RequestHandle handle;
    std::shared_ptr<Listener> listener;
    std::size_t leaves_after = 0;  // tokens; 0: stays
  };
  struct EmbedCall {
    std::atomic<int> answers{0};
    bool cancelled = false;
  };
  void Leave(std::vector<Live>& live, Random& random);

  World world_;
  Random random_;
  const SteadyClock clock_;
  Ledger ledger_;
  std::vector<Repeatable> repeatables_;
  std::atomic<bool> stop_{false};
  std::vector<std::shared_ptr<EmbedCall>> embed_calls_;  // the attendant's
  std::vector<float> first_vector_;                      // the embedder's thread's
};

// Asked alone, before there is company.
void Scene::LearnRepeatables() {
  if (!world_.repeats) return;
  for (int i = 0; i < 6; ++i) {
    Repeatable one{RepeatableRequest(random_, world_), {}};
    if (i % 2 == 0 && !world_.adapter_folders.empty()) {
      one.request.adapter = world_.adapters->Find("fixed");
    }
    auto listener = std::make_shared<Listener>(ledger_, one.request.n);
    const auto handle = world_.engine->Submit(one.request, listener);
    if (!handle) Fatal(handle.error().message);
    while (!listener->ended()) std::this_thread::yield();
    one.first = listener->heard();
    repeatables_.push_back(std::move(one));
  }
}

void Scene::Leave(std::vector<Live>& live, Random& random) {
  std::erase_if(live, [](const Live& one) { return one.listener->ended(); });
  for (const Live& one : live) {
    if (one.leaves_after > 0 && one.listener->tokens() >= one.leaves_after) {
      world_.engine->Cancel(one.handle);
    }
  }
  if (!live.empty() && OneIn(random, 200)) {
    world_.engine->Cancel(live[random() % live.size()].handle);  // may not have begun
  }
}

void Scene::Client(std::uint64_t seed) {
  Random random(seed);
  std::vector<Live> live;
  while (!stop_) {
    Leave(live, random);
    const bool ebb = (clock_.Now() / std::chrono::milliseconds(1)) % 1000 > 600;
    if (ledger_.open > (ebb ? kEbb : kFlood)) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      continue;
    }
    const Repeatable* again = repeatables_.empty() || !OneIn(random, 10)
                                  ? nullptr
                                  : &repeatables_[random() % repeatables_.size()];
    GenerateRequest request =
        again != nullptr ? again->request : RandomRequest(random, world_, clock_.Now());
    const bool bad = again == nullptr && OneIn(random, 50);
    if (bad) request.prompt.back() = TokenId{world_.vocab};
    const int choices = request.n;
    auto listener =
        std::make_shared<Listener>(ledger_, choices, again != nullptr ? &again->first : nullptr);
    const auto handle = world_.engine->Submit(std::move(request), listener);
    if (!handle) {
      const Error& error = handle.error();
      const bool expected = bad || error.kind == ErrorKind::kUnavailable ||
                            (world_.refuses && error.param == "max_tokens");
      if (!expected) Fatal(error.message);
      listener->NeverAccepted();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      continue;
    }
    if (bad) Fatal("a token outside the vocabulary was accepted");
    live.push_back({*handle, std::move(listener),
                    again == nullptr && OneIn(random, 3)
                        ? 1 + static_cast<std::size_t>(Below(random, 40))
                        : 0});
  }
}

void Scene::ChangeAdapters(Random& random) {
  if (world_.adapter_folders.empty()) return;
  const std::string name = fmt::format("a{}", Below(random, 3));
  const std::string& folder = world_.adapter_folders[random() % world_.adapter_folders.size()];
  if (OneIn(random, 20)) {
    if (world_.adapters->Load(name, "/nowhere", /*replace=*/true)) Fatal("nothing was loaded");
  } else if (OneIn(random, 3)) {
    if (world_.adapters->Unload(name)) ++ledger_.adapters;
  } else if (world_.adapters->Load(name, folder, OneIn(random, 2))) {
    ++ledger_.adapters;
  }
  (void)world_.adapters->List();
}

void Scene::Embed(Random& random) {
  EmbedRequest request;
  const bool fixed = OneIn(random, 4);
  const int longest = world_.embedder->max_length();
  for (int i = fixed ? 0 : Below(random, 12); i >= 0; --i) {
    auto& input = request.inputs.emplace_back();
    const int length = fixed ? longest / 2 : 1 + Below(random, longest);
    for (int k = 0; k < length; ++k) {
      input.push_back(TokenId{fixed ? k % 100 : Below(random, 100)});
    }
  }
  const std::size_t size =
      request.inputs.size() * static_cast<std::size_t>(world_.embedder->dimension());
  if (OneIn(random, 3)) request.tier = Tier::kBatch;
  auto call = std::make_shared<EmbedCall>();
  const auto handle = world_.embedder->Submit(
      std::move(request), [this, call, size, fixed](Result<std::vector<float>> vectors) {
        if (call->answers++ != 0) Fatal("vectors came twice");
        if (!vectors) return;
        if (vectors->size() != size) Fatal("vectors are missing");
        ++ledger_.vectors;
        if (!fixed) return;
        if (first_vector_.empty()) first_vector_ = *vectors;
        if (first_vector_ != *vectors) Fatal("an input has got another vector than the first time");
        ++ledger_.repeated;
      });
  if (!handle) {
    if (handle.error().kind != ErrorKind::kUnavailable) Fatal(handle.error().message);
    return;
  }
  if (OneIn(random, 4)) {
    world_.embedder->Cancel(*handle);
    call->cancelled = true;
  }
  embed_calls_.push_back(std::move(call));
}

// Does what operators do, and embeds.
void Scene::Attendant(std::uint64_t seed) {
  Random random(seed);
  while (!stop_) {
    ChangeAdapters(random);
    if (world_.embedder->Stats().waiting_requests < 40) Embed(random);
    (void)world_.adapters->Stats();
    const EngineStats stats = world_.engine->Stats();
    if (stats.pages_used + stats.pages_cached > stats.pages_total) {
      Fatal("more pages than there are");
    }
    *world_.faulty = OneIn(random, 4);
    std::this_thread::sleep_for(std::chrono::microseconds(Below(random, 2000)));
  }
}

Tally Scene::Run(Nanos length) {
  if (!world_.adapter_folders.empty()) {
    const Status loaded = world_.adapters->Load("fixed", world_.adapter_folders[0], false);
    if (!loaded) Fatal(loaded.error().message);
  }
  LearnRepeatables();
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([this, seed = random_()] { Client(seed); });
  }
  threads.emplace_back([this, seed = random_()] { Attendant(seed); });
  const Nanos end = clock_.Now() + length;
  while (clock_.Now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(5));

  // Three ways to end: let all finish, hurry them, pull the plug.
  const int ending = Below(random_, 3);
  if (ending == 0 && !world_.engine->Drain(Nanos::max())) {
    Fatal("draining without a limit cancelled");
  }
  if (ending == 1) (void)world_.engine->Drain(clock_.Now() + std::chrono::milliseconds(5));
  if (ending != 2) (void)world_.embedder->Drain(Nanos::max());
  stop_ = true;
  for (std::thread& thread : threads) thread.join();
  const EngineStats stats = world_.engine->Stats();
  if (ending != 2) {
    if (stats.pages_used != 0) Fatal(fmt::format("{} pages are still in use", stats.pages_used));
    if (stats.running + stats.waiting != 0) Fatal("sequences are left over");
    for (const auto& call : embed_calls_) {
      if (!call->cancelled && call->answers != 1) Fatal("vectors never came");
    }
  }
  world_.engine.reset();
  world_.embedder.reset();
  if (ledger_.open != 0) Fatal(fmt::format("{} requests never ended", ledger_.open.load()));
  repeatables_.clear();
  for (const AdapterInfo& adapter : world_.adapters->List()) {
    if (!world_.adapters->Unload(adapter.name)) Fatal("an adapter cannot be unloaded");
  }
  const AdapterStats adapters = world_.adapters->Stats();
  if (adapters.retiring != 0 || adapters.retiring_bytes != 0) Fatal("an adapter is still in use");

  return TallyOf(ledger_, stats);
}

}  // namespace

void Tally::Add(const Tally& other) {
  answers += other.answers;
  cancelled += other.cancelled;
  failed += other.failed;
  refused += other.refused;
  repeated += other.repeated;
  adapters += other.adapters;
  vectors += other.vectors;
  preemptions += other.preemptions;
  accepted_drafts += other.accepted_drafts;
  prefix_hits += other.prefix_hits;
  pages_moved += other.pages_moved;
  pages_recycled += other.pages_recycled;
}

Tally Play(World world, std::uint64_t seed, Nanos length) {
  return Scene(std::move(world), seed).Run(length);
}

Tally KillClients(int count) {
  EngineOptions options;
  options.max_num_seqs = 16;
  options.max_num_batched_tokens = 128;
  options.kv_memory_bytes = 96 * PageBytes(FakeModel().kv_shape(options.kv_type));
  options.batch_window = std::chrono::microseconds(200);
  options.context_policy = ContextPolicy::kRing;  // nobody ends by himself
  auto started = Engine::Start(options, std::make_unique<FakeModel>(), nullptr);
  if (!started) Fatal(started.error().message);
  Engine& engine = **started;
  Ledger ledger;
  Random random(3);
  for (int i = 0; i < count;) {
    std::vector<std::pair<RequestHandle, std::shared_ptr<Listener>>> streams;
    for (int k = 0; k < 16 && i < count; ++k, ++i) {
      GenerateRequest request;
      const int length = 1 + Below(random, 120);
      for (int t = 0; t < length; ++t) {
        request.prompt.push_back(TokenId{t < 64 ? t % 13 : Below(random, 61)});
      }
      request.max_new_tokens = 1 << 30;
      auto listener = std::make_shared<Listener>(ledger, 1);
      streams.emplace_back(*engine.Submit(std::move(request), listener), listener);
    }
    for (auto& [handle, listener] : streams) {
      while (listener->tokens() == 0) std::this_thread::yield();  // mid-answer
      engine.Cancel(handle);
    }
  }
  engine.Drain(Nanos::max());
  const EngineStats stats = engine.Stats();
  if (stats.pages_used != 0 || ledger.open != 0) {
    Fatal(fmt::format("{} pages and {} requests are left over", stats.pages_used,
                      ledger.open.load()));
  }
  return TallyOf(ledger, stats);
}

}  // namespace tare::engine::soak
