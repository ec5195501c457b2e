#include "soak_world.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "engine/cpu_executor.h"
#include "engine/fake_model.h"
#include "model/load.h"
#include "model/text.h"
#include "model/tiny_encoder.h"

namespace tare::engine::soak {
namespace {

constexpr int kTinyVocab = 160;

// Another model, some of whose steps fail while `faulty` is set.
class FaultyModel final : public model::LanguageModel {
 public:
  FaultyModel(std::unique_ptr<model::LanguageModel> model, std::shared_ptr<ThreadPool> pool,
              std::shared_ptr<std::atomic<bool>> faulty, std::uint64_t seed)
      : pool_(std::move(pool)), model_(std::move(model)), faulty_(std::move(faulty)), dice_(seed) {}

  const model::ModelConfig& config() const override { return model_->config(); }
  std::size_t weight_bytes() const override { return model_->weight_bytes(); }
  kernels::WeightType weight_type() const override { return model_->weight_type(); }
  kernels::KvShape kv_shape(kernels::KvType type) const override { return model_->kv_shape(type); }
  const model::ExpertUse* expert_use() const override { return model_->expert_use(); }
  void ResetExpertUse() override { model_->ResetExpertUse(); }
  void Forward(const model::ForwardInput& input, kernels::KvPages& kv,
               std::span<float> logits) override {
    if (*faulty_ && OneIn(dice_, 400)) throw std::runtime_error("soaked through");
    model_->Forward(input, kv, logits);
    if (*faulty_ && !logits.empty() && OneIn(dice_, 400)) {
      std::fill_n(logits.begin(), model_->config().vocab, NAN);
    }
  }

 private:
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<model::LanguageModel> model_;
  std::shared_ptr<std::atomic<bool>> faulty_;
  Random dice_;
};

// The character that stands for a byte in a byte-level vocabulary, in UTF-8.
std::string ByteCharacter(int byte) {
  const auto stands_for_itself = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b != 173);
  };
  int code = byte;
  if (!stands_for_itself(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += !stands_for_itself(b);
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
}

// Tokens are the bytes 96 to 255: letters, and pieces of characters that are seldom whole.
std::shared_ptr<const model::Text> ByteText() {
  nlohmann::json json = nlohmann::json::parse(R"({
    "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": true},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
      "ignore_merges": false, "merges": []}})");
  for (int id = 0; id < kTinyVocab; ++id) json["model"]["vocab"][ByteCharacter(96 + id)] = id;
  auto tokenizer = model::Tokenizer::FromJson(json.dump());
  if (!tokenizer) Fatal(tokenizer.error().message);
  model::Text::Parts parts{*std::move(tokenizer), {}, {TokenId{3}}, {}, TokenId{3}, {}};
  return std::make_shared<const model::Text>(std::move(parts));
}

}  // namespace

void Fatal(const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr, "engine_soak: %s\n", what.c_str());
  std::abort();
}

Maker::Maker() : models_(model::ReadTinyModels()), text_(ByteText()) {
  if (models_.empty()) Fatal("tests/golden/tiny_models.json cannot be read");
  const std::vector<model::TinyAdapter> adapters = model::ReadTinyAdapters();
  for (const model::TinyModel& model : models_) {
    files_.push_back(model::TinyGguf(model));
    auto& folders = adapters_.emplace_back();
    for (const model::TinyAdapter& adapter : adapters) {
      if (adapter.base != model.name) continue;
      for (const char* flavour : {"A", "B"}) {
        folders.push_back(std::make_unique<model::AdapterFolder>(adapter, flavour));
      }
    }
  }
  std::string folder = (std::filesystem::temp_directory_path() / "tare-soak-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) Fatal("no temporary folder can be made");
  encoder_ = folder;
  model::WriteTinyEncoder(model::ReadTinyEncoders().at(0), encoder_);
}

Maker::~Maker() {
  std::error_code code;
  std::filesystem::remove_all(encoder_, code);
}

World Maker::Make(std::uint64_t seed) {
  Random random(seed);
  World world;
  world.faulty = std::make_shared<std::atomic<bool>>(false);
  auto pool = std::make_shared<ThreadPool>(1 + Below(random, 3));
  std::unique_ptr<model::LanguageModel> model;
  std::shared_ptr<const model::Text> text;
  // As often as all the others together, since it is the fastest.
  if (OneIn(random, 3)) {
    model = std::make_unique<FakeModel>();
    world.repeats = true;
  } else {
    const auto chosen = static_cast<std::size_t>(Below(random, static_cast<int>(models_.size())));
    constexpr kernels::WeightType kTypes[] = {
        kernels::WeightType::kInt4, kernels::WeightType::kInt8, kernels::WeightType::kBf16,
        kernels::WeightType::kF32};
    model::LoadOptions loading;
    loading.dtype = kTypes[Below(random, 4)];
    loading.pool = pool.get();
    world.repeats = *loading.dtype == kernels::WeightType::kInt4 ||
                    *loading.dtype == kernels::WeightType::kInt8;
    const auto bytes = std::as_bytes(std::span(files_[chosen]));
    auto file = model::GgufFile::Parse(bytes, models_[chosen].name);
    if (!file) Fatal(file.error().message);
    auto loaded = model::LoadModel(*file, loading);
    if (!loaded) Fatal(loaded.error().message);
    model = *std::move(loaded);
    text = text_;
    for (const auto& folder : adapters_[chosen]) {
      world.adapter_folders.push_back(folder->path().string());
    }
  }
  const std::string model_name = model->config().name;
  const kernels::WeightType type = model->weight_type();
  world.vocab = model->config().vocab;
  world.adapters = std::make_shared<AdapterStore>(model->config(), type);
  model = std::make_unique<FaultyModel>(std::move(model), pool, world.faulty, seed);

  EngineOptions options;
  options.pool = pool;
  options.seed = 1 + seed;
  options.max_model_len = world.window = 64 + 16 * Below(random, 12);
  options.max_num_seqs = 1 + Below(random, OneIn(random, 4) ? 64 : 24);
  options.max_num_batched_tokens = options.max_num_seqs + 16 + Below(random, 150);
  options.prefill_chunk = 16 * Below(random, 4);
  constexpr kernels::KvType kKvTypes[] = {kernels::KvType::kF32, kernels::KvType::kBf16,
                                          kernels::KvType::kInt8};
  constexpr const char* kKvNames[] = {"f32", "bf16", "int8"};
  const int kv = Below(random, 3);
  options.kv_type = kKvTypes[kv];
  // From what one sequence of full length needs, so that others have to give way, to plenty.
  const int least = world.window / kernels::kTokensPerPage;
  const int pages = OneIn(random, 3) ? 40 * least : least + Below(random, 3 * least);
  options.kv_memory_bytes =
      static_cast<std::size_t>(pages) * PageBytes(model->kv_shape(options.kv_type));
  options.prefix_cache = !OneIn(random, 3);
  constexpr ContextPolicy kPolicies[] = {ContextPolicy::kError, ContextPolicy::kStop,
                                         ContextPolicy::kRing};
  options.context_policy = kPolicies[Below(random, 3)];
  world.ring = options.context_policy == ContextPolicy::kRing;
  world.refuses = options.context_policy == ContextPolicy::kError;
  const int guessing = Below(random, 3);
  if (guessing == 0) options.speculation = {};
  if (guessing == 1) options.speculation = {.most = 1 + Below(random, 12), .adaptive = false};
  options.batch_window = std::chrono::microseconds(OneIn(random, 2) ? 0 : Below(random, 5000));
  options.batch_window_requests = 1 + Below(random, 32);
  options.batch_tier_ageing = std::chrono::milliseconds(1 + Below(random, 2000));
  options.max_queued = OneIn(random, 4) ? 20 : 4096;
  world.name = fmt::format("{} {}, KV {} of {} pages, {} x {} tokens, step {}, {}, {}", model_name,
                           kernels::ToString(type), kKvNames[kv], pages, options.max_num_seqs,
                           world.window, options.max_num_batched_tokens,
                           world.ring      ? "ring"
                           : world.refuses ? "error"
                                           : "stop",
                           guessing == 0   ? "no drafts"
                           : guessing == 1 ? "drafts"
                                           : "drafts that pay");
  auto engine = Engine::Start(std::move(options), std::move(model), std::move(text));
  if (!engine) Fatal(world.name + ": " + engine.error().message);
  world.engine = *std::move(engine);

  LocalModelOptions embedding;
  embedding.model = encoder_.string();
  embedding.threads = 1 + Below(random, 2);
  embedding.engine.max_num_batched_tokens = 1 + Below(random, 200);
  embedding.engine.max_queued = OneIn(random, 4) ? 10 : 4096;
  auto embedder = LoadLocalEmbedder(embedding);
  if (!embedder) Fatal(embedder.error().message);
  world.embedder = std::move(embedder->embedder);
  return world;
}

}  // namespace tare::engine::soak
