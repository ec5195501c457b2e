// tare eval: what a model's answers are worth. `ppl` measures what each precision costs in quality.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/tare/commands.h"
#include "base/files.h"
#include "eval/perplexity.h"
#include "eval/sample_texts.h"
#include "model/checkpoint.h"
#include "model/load.h"
#include "model/text.h"

namespace tare::app {
namespace {

struct PplWords {
  std::string model;
  std::string text;
  std::vector<std::string> dtypes;
  std::string against;
  std::string reference = "f32";
  int window = 512;
  int max_tokens = 0;
  int threads = 0;
  bool json = false;
};

struct PrecisionRow {
  std::string dtype;
  std::size_t weight_bytes = 0;
  eval::PerplexityResult result;
};

Result<std::unique_ptr<model::LanguageModel>> Load(const model::Checkpoint& checkpoint,
                                                   const std::string& dtype, ThreadPool& pool) {
  model::LoadOptions options;
  TARE_TRY(options.dtype, model::ParseDtype(dtype));
  options.pool = &pool;
  return model::LoadModel(checkpoint, options);
}

// Which precisions to measure when none are named: of a quantised checkpoint held against its
// original, the one it is stored in.
std::vector<std::string> Dtypes(const PplWords& words) {
  if (!words.dtypes.empty()) return words.dtypes;
  if (!words.against.empty()) return {"auto"};
  return {"bf16", "int8", "int4"};
}

// What divergence is against, for people.
std::string ReferenceText(const PplWords& words) {
  return words.against.empty() ? words.reference
                               : fmt::format("{} in {}", words.against, words.reference);
}

Result<std::vector<PrecisionRow>> Measure(const PplWords& words) {
  std::string text(eval::MeasuringText());
  if (!words.text.empty()) {
    TARE_TRY(text, ReadFile(words.text));
  }
  TARE_TRY(const auto checkpoint, model::OpenCheckpoint(words.model));
  std::unique_ptr<model::Checkpoint> original;
  if (!words.against.empty()) {
    TARE_TRY(original, model::OpenCheckpoint(words.against));
  }
  TARE_TRY(const auto text_facts, model::LoadText(words.model));
  TARE_TRY(std::vector<TokenId> tokens, text_facts->EncodePrompt(text));
  if (words.max_tokens > 0 && tokens.size() > static_cast<std::size_t>(words.max_tokens)) {
    tokens.resize(static_cast<std::size_t>(words.max_tokens));
  }

  ThreadPool pool(words.threads);
  TARE_TRY(const auto reference,
           Load(original != nullptr ? *original : *checkpoint, words.reference, pool));
  std::vector<PrecisionRow> rows;
  const auto measure = [&](const std::string& dtype, model::LanguageModel& model,
                           model::LanguageModel* against) -> Status {
    eval::PerplexityOptions options;
    options.window = words.window;
    options.progress = [&](double fraction) {
      std::fprintf(stderr, "\r%-5s %3.0f %%", dtype.c_str(), fraction * 100);
      if (fraction >= 1) std::fputc('\n', stderr);
    };
    TARE_TRY(auto result, eval::MeasurePerplexity(model, against, tokens, options));
    rows.push_back({dtype, model.weight_bytes(), std::move(result)});
    return {};
  };
  TARE_RETURN_IF_ERROR(measure(words.reference, *reference, nullptr));
  for (const std::string& dtype : Dtypes(words)) {
    TARE_TRY(const auto model, Load(*checkpoint, dtype, pool));
    TARE_RETURN_IF_ERROR(measure(dtype, *model, reference.get()));
  }
  return rows;
}

void PrintTable(const PplWords& words, const std::vector<PrecisionRow>& rows) {
  fmt::print("{} tokens scored, windows of {}; divergence against {}\n\n",
             rows.front().result.scored_tokens, words.window, ReferenceText(words));
  fmt::print("{:<6}{:>12}{:>12}{:>20}{:>22}{:>12}{:>10}\n", "dtype", "weights MB", "perplexity",
             "95 % interval", "KL mean (nats)", "KL p99", "top-1 %");
  for (const PrecisionRow& row : rows) {
    const auto& r = row.result;
    fmt::print("{:<6}{:>12.1f}{:>12.3f}{:>20}", row.dtype,
               static_cast<double>(row.weight_bytes) / 1e6, r.perplexity,
               r.interval95
                   ? fmt::format("{:.3f}-{:.3f}", r.interval95->first, r.interval95->second)
                   : "none");
    if (r.divergence) {
      fmt::print("{:>22}{:>12.4f}{:>10.1f}\n", eval::MeanText(r.divergence->kl),
                 r.divergence->kl_p99, r.divergence->top1_agreement * 100);
    } else {
      fmt::print("{:>22}{:>12}{:>10}\n", "reference", "", "");
    }
  }
  if (const std::string why = eval::WhyNoInterval(rows.front().result); !why.empty()) {
    fmt::print("\n{}", why);
  }
}

void PrintJson(const PplWords& words, const std::vector<PrecisionRow>& rows) {
  nlohmann::json document = {{"schema", "tare.quality/1"},
                             {"model", words.model},
                             {"text", words.text.empty() ? "built-in" : words.text},
                             {"window", words.window},
                             {"reference", words.reference}};
  if (!words.against.empty()) document["against"] = words.against;
  for (const PrecisionRow& row : rows) {
    const auto& r = row.result;
    nlohmann::json entry = {{"dtype", row.dtype},
                            {"weights_bytes", row.weight_bytes},
                            {"scored_tokens", r.scored_tokens},
                            {"nll", eval::ToJson(r.nll)},
                            {"perplexity", r.perplexity}};
    if (r.divergence) {
      entry["kl"] = eval::ToJson(r.divergence->kl);
      entry["kl"]["p99"] = r.divergence->kl_p99;
      entry["top1_agreement"] = r.divergence->top1_agreement;
    }
    document["precisions"].push_back(std::move(entry));
  }
  fmt::print("{}\n", document.dump(2));
}

}  // namespace

void AddEval(CLI::App& app, Invocation& invocation) {
  auto* eval = app.add_subcommand("eval", "Measure what a model's answers are worth");
  eval->require_subcommand(1);
  auto* ppl = eval->add_subcommand(
      "ppl", "Perplexity of each precision, and its divergence from a wider one");
  auto words = std::make_shared<PplWords>();
  ppl->add_option("MODEL", words->model, "A .gguf file or a Hugging Face folder")->required();
  ppl->add_option("--text", words->text,
                  "File with text the model should know how to continue (default: a short built-in "
                  "one)");
  ppl->add_option("--against", words->against,
                  "Another model of the same tokens to hold it against, as the original of a "
                  "quantised one (default: the model itself, in the reference precision)");
  ppl->add_option("--dtype", words->dtypes,
                  "Precisions to measure (default bf16,int8,int4; with --against auto, as it is "
                  "stored)")
      ->delimiter(',');
  ppl->add_option("--reference", words->reference, "Precision held to be right (default f32)");
  ppl->add_option("--window", words->window, "Tokens of context (default 512)");
  ppl->add_option("--max-tokens", words->max_tokens, "Use only the text's first tokens");
  ppl->add_option("--threads", words->threads, "Default: one per core");
  ppl->add_flag("--json", words->json, "One JSON document on stdout");
  ppl->footer(
      "Examples:\n  tare eval ppl model.gguf --text book.txt --dtype int8,int4 --max-tokens 20000\n"
      "  tare eval ppl Qwen3-30B-A3B-AWQ/ --against Qwen3-30B-A3B/ --reference bf16");
  ppl->callback([words, &invocation] {
    invocation.run = [words] {
      auto rows = Measure(*words);
      if (!rows) return Report(rows.error());
      words->json ? PrintJson(*words, *rows) : PrintTable(*words, *rows);
      return kSuccess;
    };
  });
}

}  // namespace tare::app
