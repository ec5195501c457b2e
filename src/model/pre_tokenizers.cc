#include "model/pre_tokenizers.h"

#include <map>

#include "base/text.h"
#include "model/json_text.h"

namespace tare::model {
namespace {

// The pieces most expressions share, in the order they are tried.
#define TARE_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define TARE_BLANKS R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define TARE_PUNCTUATION R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"

constexpr const char* kLlama3 =
    TARE_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)" TARE_PUNCTUATION "|" TARE_BLANKS;
constexpr const char* kQwen2 =
    TARE_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)" TARE_PUNCTUATION "|" TARE_BLANKS;
constexpr const char* kQwen35 = TARE_CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" TARE_BLANKS;

constexpr const char* kDeepseekPunctuatedWord =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" TARE_BLANKS;
constexpr const char* kDeepseekHanKana = "[一-龥\u3040-ゟ゠-ヿ]+";
constexpr const char* kDeepseekCjk = "[一-龥ࠀ-一가-\uD7FF]+";
// The letters with case, listed range by range in the published file.
constexpr const char* kDeepseekWord =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-"
    "Ჿᴀ-"
    "ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅ"
    "Ὀ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-"
    "ꝯꝱ-"
    "ꞇꞋ-ꞎ"
    "ꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-"
    "𞥃]"
    "+";
constexpr const char* kDeepseekPunctuation = "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+";

// Words by case: an optional other character, upper-case letters, lower-case letters.
#define TARE_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define TARE_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?)" TARE_UPPER "*" TARE_LOWER "+" TARE_CONTRACTION
    R"(?|[^\r\n\p{L}\p{N}]?)" TARE_UPPER "+" TARE_LOWER "*" TARE_CONTRACTION
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" TARE_BLANKS;
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?)" TARE_UPPER "*" TARE_LOWER R"(+|[^\r\n\p{L}\p{N}]?)" TARE_UPPER
    "+" TARE_LOWER R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" TARE_BLANKS;
// Kimi's Han characters stand apart from other letters.
#define TARE_UPPER_NOT_HAN R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
#define TARE_LOWER_NOT_HAN R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"
constexpr const char* kKimi =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?)" TARE_UPPER_NOT_HAN "*" TARE_LOWER_NOT_HAN
    "+" TARE_CONTRACTION R"(?|[^\r\n\p{L}\p{N}]?)" TARE_UPPER_NOT_HAN "+" TARE_LOWER_NOT_HAN
    "*" TARE_CONTRACTION R"(?|\p{N}{1,3}|)" TARE_PUNCTUATION "|" TARE_BLANKS;

PreTokenizer Gpt2() { return {.gpt2_words = true}; }
PreTokenizer DigitsAndGpt2() { return {.isolate_digits = true, .gpt2_words = true}; }
PreTokenizer Words(const char* expression) { return {.splits = {expression}}; }
PreTokenizer Llama3() { return {.splits = {kLlama3}, .ignore_merges = true, .adds_bos = true}; }
PreTokenizer Qwen2() { return {.splits = {kQwen2}, .nfc = true}; }
PreTokenizer DeepseekLlm() {
  return {.splits = {"[\r\n]", kDeepseekWord, kDeepseekPunctuation, "\\s+$", kDeepseekCjk},
          .isolate_digits = true};
}
PreTokenizer DeepseekCoder() {
  return {.splits = {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kDeepseekCjk}, .isolate_digits = true};
}
PreTokenizer DeepseekV3() {
  return {.splits = {"\\p{N}{1,3}", kDeepseekHanKana, kDeepseekPunctuatedWord}};
}
// What files without a name get: punctuation apart, GPT-2's words, digits in threes.
PreTokenizer Default() {
  return {.splits = {"[\\p{P}\\$\\+<=>\\^~\\|]+",
                     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
                     "\\p{N}+", "[0-9][0-9][0-9]"}};
}
PreTokenizer Tekken() { return {.splits = {kTekken}, .ignore_merges = true, .adds_bos = true}; }
PreTokenizer Glm4() { return {.splits = {kLlama3}, .ignore_merges = true}; }

const std::map<std::string, PreTokenizer (*)(), std::less<>>& Table() {
  static const std::map<std::string, PreTokenizer (*)(), std::less<>> table = {
      {"default", Default},
      {"gpt-2", Gpt2},
      {"phi-2", Gpt2},
      {"mpt", Gpt2},
      {"olmo", Gpt2},
      {"smollm", DigitsAndGpt2},
      {"starcoder", DigitsAndGpt2},
      {"refact", DigitsAndGpt2},
      {"command-r", DigitsAndGpt2},
      {"codeshell", DigitsAndGpt2},
      {"llama-bpe", Llama3},
      {"llama3", Llama3},
      {"llama-v3", Llama3},
      {"falcon3", Llama3},
      {"lfm2", Llama3},
      {"dbrx", [] { return Words(kLlama3); }},
      {"smaug-bpe", [] { return Words(kLlama3); }},
      {"chatglm-bpe", [] { return Words(kLlama3); }},
      {"glm4", Glm4},
      {"qwen2", Qwen2},
      {"deepseek-r1-qwen", Qwen2},
      {"stablelm2", [] { return Words(kQwen2); }},
      {"hunyuan", [] { return Words(kQwen2); }},
      {"qwen35", [] { return PreTokenizer{.splits = {kQwen35}, .nfc = true}; }},
      {"deepseek-llm", DeepseekLlm},
      {"deepseek-coder", DeepseekCoder},
      {"deepseek-v3", DeepseekV3},
      {"hunyuan-dense", DeepseekV3},
      {"gpt-4o", [] { return Words(kGpt4o); }},
      {"tekken", Tekken},
      {"kimi-k2", [] { return Words(kKimi); }},
  };
  return table;
}

}  // namespace

Result<PreTokenizer> FindPreTokenizer(std::string_view name) {
  const auto found = Table().find(name);
  if (found != Table().end()) return found->second();
  std::vector<std::string> known;
  for (const auto& entry : Table()) known.push_back(entry.first);
  const std::string near = NearestName(name, known);
  return Fail(ErrorKind::kUnsupported,
              "unknown pre-tokenizer '{}' (tokenizer.ggml.pre){}; known are: {}", name,
              near.empty() ? "" : ", did you mean '" + near + "'", fmt::join(known, ", "));
}

std::string NormalizerJson(const PreTokenizer& pre) {
  return pre.nfc ? R"({"type":"NFC"})" : "null";
}

std::string PreTokenizerJson(const PreTokenizer& pre) {
  std::string json = R"({"type":"Sequence","pretokenizers":[)";
  for (const std::string& expression : pre.splits) {
    json += R"({"type":"Split","pattern":{"Regex":)";
    AppendJsonString(expression, json);
    json += R"(},"behavior":"Isolated","invert":false},)";
  }
  if (pre.isolate_digits) json += R"({"type":"Digits","individual_digits":true},)";
  json += R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":)";
  json += pre.gpt2_words ? "true}" : "false}";
  return json + "]}";
}

}  // namespace tare::model
