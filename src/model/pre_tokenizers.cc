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
// The letters with case, listed range by range in the published file; escaped, since some of them
// change under Unicode normalization.
constexpr const char* kDeepseekWord =
    "\\s?[A-Za-z"
    "\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF"
    "\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1"
    "\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5"
    "\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A"
    "\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D"
    "\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3"
    "\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115"
    "\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F"
    "\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3"
    "\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF"
    "\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F"
    "\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"
    "\U000118A0-\U000118DF\U0001E900-\U0001E943"
    "]+";
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
