#include "load/prompts.h"

#include <algorithm>
#include <cmath>
#include <span>

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
    turn_words_ = words_;
    if (spec.turn_tokens > 0) {
      turn_words_ = std::max(
          1, static_cast<int>(std::lround(spec.turn_tokens / calibration_.tokens_per_word)));
    }
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

  int Turns(std::uint64_t) const override { return std::max(1, spec_.turns); }
  Prompt MakeTurn(std::uint64_t index, int turn) const override {
    if (turn == 0) return Make(index);
    Prompt prompt;  // how long the whole conversation is depends on the answers
    prompt.output_tokens = spec_.output_tokens;
    const std::uint64_t stream =
        StreamSeed(StreamSeed(spec_.seed, index), 1000u + static_cast<unsigned>(turn));
    prompt.content_json = '"' + MakeWords(calibration_.words, stream, turn_words_) + '"';
    return prompt;
  }

  json Describe() const override {
    return {{"kind", "synthetic"},
            {"turns", std::max(1, spec_.turns)},
            {"turn_words", turn_words_},
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
  int turn_words_ = 0;  // of later turns
  std::string shared_;
};

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
