// tare quantize: rounds a model's weights to 4 or 8 bits, measures what that costs, writes it.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/tare/commands.h"
#include "base/files.h"
#include "base/text.h"
#include "eval/perplexity.h"
#include "eval/quantize.h"
#include "eval/sample_texts.h"
#include "model/load.h"
#include "model/text.h"

namespace tare::app {
namespace {

using nlohmann::json;

struct Words {
  std::string model;
  std::string out;
  std::string method = "awq";
  int bits = 4;
  std::int64_t group = 128;
  bool zero_point = false;
  bool no_zero_point = false;
  std::string calibration;
  std::string text;
  std::string reference = "f32";
  int max_tokens = 2048;
  int threads = 0;
  bool json = false;
};

struct Measured {
  std::string name;  // "original", "rtn", "awq"
  eval::PerplexityResult result;
};

struct Outcome {
  std::vector<Measured> rows;
  std::uint64_t source_bytes = 0;
  std::uint64_t bytes = 0;
  std::size_t calibration_tokens = 0;
  int experts = 0;
  int experts_unsearched = 0;
  eval::RoundingRule rule;
};

// One line on a terminal, nothing elsewhere.
class Bar {
 public:
  void Show(std::string_view what, double fraction) const {
    if (!terminal_) return;
    constexpr int kWidth = 30;
    const int full = static_cast<int>(fraction * kWidth);
    fmt::print(stderr, "\r\x1b[K{:<28} [{:<{}}] {:3.0f} %", what, std::string(full, '#'), kWidth,
               fraction * 100);
    std::fflush(stderr);
  }
  void Clear() const {
    if (terminal_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  bool terminal_ = ::isatty(2) != 0;
};

// The words of a file, or of the built-in text, as tokens; at most `limit`.
Result<std::vector<TokenId>> Tokens(const model::Text& facts, const std::string& path,
                                    std::string_view built_in, int limit) {
  std::string text(built_in);
  if (!path.empty()) {
    TARE_TRY(text, ReadFile(path));
  }
  TARE_TRY(std::vector<TokenId> tokens, facts.EncodePrompt(text));
  if (limit > 0 && tokens.size() > static_cast<std::size_t>(limit)) {
    tokens.resize(static_cast<std::size_t>(limit));
  }
  return tokens;
}

// What a model's weights take on disk: the file, or a folder's safetensors.
std::uint64_t BytesOnDisk(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::is_directory(path, code)) return std::filesystem::file_size(path, code);
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path, code)) {
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size(code);
  }
  return bytes;
}

Result<eval::RoundingRule> RuleOf(const Words& words) {
  if (words.method != "awq" && words.method != "rtn") {
    return FailParam("method", "method '{}' is not known; it may be awq or rtn", words.method);
  }
  if (words.bits != 4 && words.bits != 8) {
    return FailParam("bits", "{} bits are not possible; 4 and 8 are", words.bits);
  }
  const bool zero_point = words.bits == 4 ? !words.no_zero_point : words.zero_point;
  return eval::RoundingRule{words.bits, words.group, zero_point};
}

Result<Outcome> Run(const Words& words) {
  const Bar bar;
  Outcome out;
  TARE_TRY(out.rule, RuleOf(words));
  const bool awq = words.method == "awq";
  TARE_TRY(const auto checkpoint, model::OpenCheckpoint(words.model));
  TARE_RETURN_IF_ERROR(eval::CheckQuantizable(*checkpoint, out.rule));
  TARE_RETURN_IF_ERROR(eval::CheckOutput(words.model, words.out, *checkpoint, out.rule));
  TARE_TRY(const auto facts, model::LoadText(words.model));
  TARE_TRY(const auto calibration,
           Tokens(*facts, words.calibration, eval::CalibrationText(), words.max_tokens));
  TARE_TRY(const auto text, Tokens(*facts, words.text, eval::MeasuringText(), words.max_tokens));
  out.source_bytes = BytesOnDisk(words.model);
  out.calibration_tokens = awq ? calibration.size() : 0;

  ThreadPool pool(words.threads);
  eval::InputCollector inputs(eval::kSampledInputs, eval::kSampledInputsOfExpert);
  model::LoadOptions loading;
  TARE_TRY(loading.dtype, model::ParseDtype(words.reference));
  loading.pool = &pool;
  loading.progress = [&](double fraction, std::string_view) { bar.Show("load", fraction); };
  if (awq) loading.observe = inputs.Observer();
  TARE_TRY(const auto reference, model::LoadModel(*checkpoint, loading));
  if (awq) {
    TARE_RETURN_IF_ERROR(
        eval::ReadInWindows(*reference, calibration, eval::kCalibrationWindow,
                            [&](double fraction) { bar.Show("calibrate", fraction); }));
  }
  inputs.Stop();

  const auto measure = [&](const std::string& name, model::LanguageModel& model,
                           bool against) -> Status {
    eval::PerplexityOptions options;
    options.window = std::min(options.window, model.config().context_length);
    options.progress = [&](double fraction) { bar.Show("measure " + name, fraction); };
    TARE_TRY(auto result,
             eval::MeasurePerplexity(model, against ? reference.get() : nullptr, text, options));
    out.rows.push_back({name, std::move(result)});
    return {};
  };
  TARE_RETURN_IF_ERROR(measure("original", *reference, false));
  const auto round = [&](bool aware) -> Result<eval::QuantizedTensors> {
    return eval::QuantizeModel(
        *checkpoint, out.rule, aware ? &inputs : nullptr, pool, [&](double fraction) {
          bar.Show(aware ? "search and round (awq)" : "round (rtn)", fraction);
        });
  };
  const auto measure_rounded = [&](const std::string& name,
                                   const eval::QuantizedTensors& tensors) -> Status {
    const auto rounded = eval::MakeQuantizedCheckpoint(*checkpoint, tensors);
    model::LoadOptions options;
    options.pool = &pool;
    TARE_TRY(const auto model, model::LoadModel(*rounded, options));
    return measure(name, *model, true);
  };
  // Plain rounding is always measured, so that what the search gains can be seen.
  TARE_TRY(eval::QuantizedTensors tensors, round(false));
  TARE_RETURN_IF_ERROR(measure_rounded("rtn", tensors));
  if (awq) {
    TARE_TRY(tensors, round(true));
    out.experts = tensors.experts;
    out.experts_unsearched = tensors.experts_unsearched;
    TARE_RETURN_IF_ERROR(measure_rounded("awq", tensors));
  }
  bar.Show("write", 1.0);
  TARE_TRY(out.bytes,
           eval::WriteQuantized(words.model, words.out, *checkpoint, tensors, out.rule, awq, pool));
  bar.Clear();
  return out;
}

void PrintTable(const Words& words, const Outcome& out) {
  fmt::print(
      "{} bits, group {}, {}; {} tokens measured{}\n\n", out.rule.bits, out.rule.group,
      out.rule.zero_point ? "zero points" : "symmetric", out.rows.front().result.scored_tokens,
      out.calibration_tokens > 0 ? fmt::format(", {} to calibrate", out.calibration_tokens) : "");
  fmt::print("{:<10}{:>12}{:>10}{:>24}{:>12}{:>10}\n", "weights", "perplexity", "more",
             "KL mean (nats)", "KL p99", "top-1 %");
  const double original = out.rows.front().result.perplexity;
  for (const Measured& row : out.rows) {
    const auto& r = row.result;
    fmt::print("{:<10}{:>12.3f}{:>10}", row.name, r.perplexity,
               r.divergence ? fmt::format("{:+.2f} %", (r.perplexity / original - 1) * 100) : "");
    if (r.divergence) {
      fmt::print("{:>24}{:>12.4f}{:>10.1f}", eval::MeanText(r.divergence->kl), r.divergence->kl_p99,
                 r.divergence->top1_agreement * 100);
    }
    fmt::print("\n");
  }
  fmt::print("{}", eval::WhyNoInterval(out.rows.front().result));
  if (out.experts_unsearched > 0) {
    fmt::print(
        "{} of {} experts were reached by fewer than {} tokens and are rounded plainly; a longer "
        "--calibration text (with --max-tokens) reaches more\n",
        out.experts_unsearched, out.experts, eval::kLeastExpertInputs);
  }
  const auto saved =
      static_cast<std::int64_t>(out.source_bytes) - static_cast<std::int64_t>(out.bytes);
  fmt::print("\n'{}' written: {}, the source has {} ({} {})\n", words.out, FormatBytes(out.bytes),
             FormatBytes(out.source_bytes),
             FormatBytes(static_cast<std::uint64_t>(std::abs(saved))),
             saved >= 0 ? "saved" : "more");
}

void PrintJson(const Words& words, const Outcome& out) {
  json document = {{"schema", "tare.quantize/1"},
                   {"model", words.model},
                   {"out", words.out},
                   {"method", words.method},
                   {"bits", out.rule.bits},
                   {"group", out.rule.group},
                   {"zero_point", out.rule.zero_point},
                   {"calibration_tokens", out.calibration_tokens},
                   {"source_bytes", out.source_bytes},
                   {"bytes", out.bytes}};
  if (out.experts > 0) {
    document["experts"] = {{"rounded", out.experts}, {"too_few_tokens", out.experts_unsearched}};
  }
  for (const Measured& row : out.rows) {
    const auto& r = row.result;
    json entry = {
        {"weights", row.name}, {"scored_tokens", r.scored_tokens}, {"perplexity", r.perplexity}};
    if (r.divergence) {
      entry["kl"] = eval::ToJson(r.divergence->kl);
      entry["kl"]["p99"] = r.divergence->kl_p99;
      entry["top1_agreement"] = r.divergence->top1_agreement;
    }
    document["quality"].push_back(std::move(entry));
  }
  fmt::print("{}\n", document.dump(2));
}

}  // namespace

void AddQuantize(CLI::App& app, Invocation& invocation) {
  auto* command =
      app.add_subcommand("quantize", "Round a model's weights to 4 or 8 bits and measure the loss");
  auto words = std::make_shared<Words>();
  command->add_option("MODEL", words->model, "A .gguf file or a Hugging Face folder")->required();
  command
      ->add_option("--out", words->out,
                   "File (of a GGUF model) or folder (of a folder) to write; must not exist")
      ->required();
  command
      ->add_option("--method", words->method,
                   "awq: spare what activations show to matter; rtn: plain rounding")
      ->capture_default_str();
  command->add_option("--bits", words->bits, "4 or 8")->capture_default_str();
  command->add_option("--group", words->group, "Inputs that share a scale: 32, 64, 128, ...")
      ->capture_default_str();
  auto* with = command->add_flag("--zero-point", words->zero_point,
                                 "Ranges need not be symmetric (default with 4 bits)");
  command
      ->add_flag("--no-zero-point", words->no_zero_point, "Symmetric ranges (always with 8 bits)")
      ->excludes(with);
  command->add_option("--calibration", words->calibration,
                      "Text the model should meet while calibrating (default: a built-in one)");
  command->add_option("--text", words->text,
                      "Text to measure the loss on (default: a built-in one)");
  command->add_option("--reference", words->reference, "What the original is computed in")
      ->capture_default_str();
  command->add_option("--max-tokens", words->max_tokens, "Of each text, at most (0: all)")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threads", words->threads, "Default: one per core")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", words->json, "One JSON document on stdout");
  command->footer(
      "Example:\n  tare quantize Llama-3.2-1B/ --out Llama-3.2-1B-AWQ --method awq --bits 4 "
      "--group 128");
  command->callback([words, &invocation] {
    invocation.run = [words] {
      const auto outcome = Run(*words);
      if (!outcome) {
        Bar().Clear();
        return Report(outcome.error());
      }
      words->json ? PrintJson(*words, *outcome) : PrintTable(*words, *outcome);
      return kSuccess;
    };
  });
}

}  // namespace tare::app
