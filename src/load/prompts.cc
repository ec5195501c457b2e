#include "load/prompts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include "base/files.h"
#include "base/text.h"
#include "load/random.h"
#include "load/words.h"

namespace tare::load {
namespace {

using nlohmann::json;

constexpr std::uint64_t kSharedStream = ~std::uint64_t{0};

class SyntheticPrompts final : public PromptSource {
 public:
  SyntheticPrompts(const WorkloadSpec& spec, TokenCalibration calibration)
      : spec_(spec), calibration_(std::move(calibration)) {
    if (calibration_.words.empty()) {
      calibration_.words.assign(CommonWords().begin(), CommonWords().end());
    }
    const double wanted = std::max(1, spec.input_tokens - calibration_.overhead);
    words_ = std::max(1, static_cast<int>(std::lround(wanted / calibration_.tokens_per_word)));
    shared_words_ = std::min(
        words_, static_cast<int>(std::lround(spec.shared_prefix * static_cast<double>(words_))));
    shared_ = MakeWords(calibration_.words, StreamSeed(spec.seed, kSharedStream), shared_words_);
  }

  Prompt Make(std::uint64_t index) const override {
    Prompt prompt;
    prompt.input_tokens = spec_.input_tokens;
    prompt.output_tokens = spec_.output_tokens;
    std::string& text = prompt.content_json;
    text.append(1, '"').append(shared_);
    if (words_ > shared_words_) {
      if (!shared_.empty()) text += ' ';
      text += MakeWords(calibration_.words, StreamSeed(spec_.seed, index), words_ - shared_words_);
    }
    text += '"';  // the words need no escapes
    return prompt;
  }

  json Describe() const override {
    return {{"kind", "synthetic"},
            {"input_tokens", spec_.input_tokens},
            {"output_tokens", spec_.output_tokens},
            {"shared_prefix", spec_.shared_prefix},
            {"words", words_},
            {"template_tokens", calibration_.overhead},
            {"tokens_per_word", calibration_.tokens_per_word},
            {"lengths_from", calibration_.how}};
  }

 private:
  WorkloadSpec spec_;
  TokenCalibration calibration_;
  int words_ = 0;
  int shared_words_ = 0;
  std::string shared_;
};

class Dataset final : public PromptSource {
 public:
  Dataset(std::string name, std::uint64_t seed, std::vector<Prompt> prompts)
      : name_(std::move(name)), seed_(seed), prompts_(std::move(prompts)) {}

  Prompt Make(std::uint64_t index) const override {
    // Without replacement as long as the lines last: in each pass, a step that has no divisor in
    // common with the number of lines visits every line once.
    const std::uint64_t n = prompts_.size();
    const std::uint64_t pass = index / n;
    std::uint64_t step = StreamSeed(seed_, 2 * pass) % n | 1;
    while (std::gcd(step, n) != 1) ++step;
    const std::uint64_t offset = StreamSeed(seed_, 2 * pass + 1) % n;
    return prompts_[(offset + (index % n) * step) % n];
  }

  json Describe() const override {
    return {{"kind", "dataset"}, {"file", name_}, {"lines", prompts_.size()}};
  }

 private:
  std::string name_;
  std::uint64_t seed_;
  std::vector<Prompt> prompts_;
};

int LengthIn(const json& line) {
  for (const char* key : {"output_tokens", "max_tokens", "output_length", "output_len"}) {
    const auto it = line.find(key);
    if (it != line.end() && it->is_number_integer()) {
      return static_cast<int>(std::clamp<std::int64_t>(it->get<std::int64_t>(), 0, 1 << 24));
    }
  }
  return 0;
}

std::string Dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Empty when the line has none of the known shapes.
std::optional<Prompt> ReadLine(const json& line) {
  if (!line.is_object()) return std::nullopt;
  Prompt prompt;
  prompt.output_tokens = LengthIn(line);
  if (const auto it = line.find("messages"); it != line.end() && it->is_array() && !it->empty()) {
    prompt.messages_json = Dump(*it);
    return prompt;
  }
  if (const auto it = line.find("conversations"); it != line.end() && it->is_array()) {
    for (const json& turn : *it) {
      if (turn.is_object() && turn.value("from", std::string()) == "human" &&
          turn.contains("value") && turn["value"].is_string()) {
        prompt.content_json = Dump(turn["value"]);
        return prompt;
      }
    }
    return std::nullopt;
  }
  for (const char* key : {"prompt", "text", "question", "instruction"}) {
    const auto it = line.find(key);
    if (it != line.end() && it->is_string()) {
      prompt.content_json = Dump(*it);
      return prompt;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string MakeWords(const std::vector<std::string_view>& words, std::uint64_t seed, int n) {
  Random random(seed);
  std::string text;
  text.reserve(static_cast<std::size_t>(std::max(n, 0)) * 6);
  for (int i = 0; i < n; ++i) {
    if (i > 0) text += ' ';
    text += words[random.Below(words.size())];
  }
  return text;
}

std::unique_ptr<PromptSource> MakeSyntheticPrompts(const WorkloadSpec& spec,
                                                   TokenCalibration calibration) {
  return std::make_unique<SyntheticPrompts>(spec, std::move(calibration));
}

Result<std::unique_ptr<PromptSource>> LoadDataset(const WorkloadSpec& spec) {
  TARE_TRY(const std::string content, ReadFile(spec.dataset));
  std::vector<Prompt> prompts;
  std::size_t number = 0;
  for (const std::string_view raw : Split(content, '\n')) {
    ++number;
    const std::string_view text = Trim(raw);
    if (text.empty()) continue;
    const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    std::optional<Prompt> prompt = ReadLine(line);
    if (!prompt) {
      return Fail(ErrorKind::kInvalidArgument,
                  "{}:{}: {}; a line is a JSON object with \"prompt\", \"messages\" or "
                  "\"conversations\"",
                  spec.dataset.string(), number,
                  line.is_discarded() ? "not JSON" : "no prompt in it");
    }
    if (prompt->output_tokens == 0) prompt->output_tokens = spec.output_tokens;
    prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty()) {
    return Fail(ErrorKind::kInvalidArgument, "data set '{}' is empty", spec.dataset.string());
  }
  return std::make_unique<Dataset>(spec.dataset.filename().string(), spec.seed, std::move(prompts));
}

Result<std::vector<std::string_view>> SingleTokenWords(
    const std::function<Result<std::size_t>(const std::string&)>& count) {
  constexpr std::size_t kFewest = 32;
  const auto join = [](std::span<const std::string_view> words, char separator, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) {
      for (const std::string_view word : words) (text += separator) += word;
    }
    return text;
  };
  // Said twice minus said once leaves the words themselves: marks at the beginning fall out. After
  // a blank a word must be one token; after a line break it and the break must be two.
  const auto single = [&](std::span<const std::string_view> words) -> Result<bool> {
    for (const auto& [separator, each] : {std::pair{' ', std::size_t{1}}, {'\n', std::size_t{2}}}) {
      TARE_TRY(const std::size_t once, count(join(words, separator, 1)));
      TARE_TRY(const std::size_t twice, count(join(words, separator, 2)));
      if (twice - once != each * words.size()) return false;
    }
    return true;
  };
  std::vector<std::string_view> good;
  std::vector<std::span<const std::string_view>> open = {CommonWords()};
  while (!open.empty()) {
    const std::span<const std::string_view> words = open.back();
    open.pop_back();
    TARE_TRY(const bool all_single, single(words));
    if (all_single) {
      good.insert(good.end(), words.begin(), words.end());
    } else if (words.size() > 1) {
      open.push_back(words.subspan(words.size() / 2));
      open.push_back(words.subspan(0, words.size() / 2));
    }
  }
  if (good.size() < kFewest) {
    return Fail(ErrorKind::kUnsupported,
                "the tokenizer splits nearly every common word ({} of {} "
                "are one token)",
                good.size(), CommonWords().size());
  }
  return good;
}

}  // namespace tare::load
