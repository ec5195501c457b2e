#include "model/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/json_text.h"
#include "model/pre_tokenizers.h"
#include "model/test_base64.h"
#include "model/tokenizer.h"

namespace tare::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> Ids(const Tokenizer& tokenizer, std::string_view text,
                     EncodeOptions options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids) << ids.error().message;
  std::vector<int> result;
  if (ids) {
    for (const TokenId id : *ids) result.push_back(ToInt(id));
  }
  return result;
}

Tokenizer Build(const GgufVocabulary& vocabulary) {
  const auto json = TokenizerJson(vocabulary);
  EXPECT_TRUE(json) << json.error().message;
  auto tokenizer = Tokenizer::FromJson(*json);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

// A model trained and encoded with by the sentencepiece library
// (tests/golden/sentencepiece_ids.py).
class SentencePieceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto file = ReadFile(TARE_SOURCE_DIR "/tests/golden/sentencepiece_ids.json");
    ASSERT_TRUE(file) << file.error().message;
    golden_ = nlohmann::json::parse(*file);
    tokens_ = golden_["tokens"].get<std::vector<std::string>>();
    vocabulary_.model = "llama";
    vocabulary_.pre = "default";
    for (const std::string& token : tokens_) vocabulary_.tokens.push_back(token);
    for (const int type : golden_["types"]) {
      vocabulary_.types.push_back(static_cast<GgufTokenType>(type));
    }
    vocabulary_.scores = golden_["scores"].get<std::vector<float>>();
    vocabulary_.unknown = 0;
    vocabulary_.bos = 1;
    vocabulary_.eos = 2;
  }

  nlohmann::json golden_;
  std::vector<std::string> tokens_;
  GgufVocabulary vocabulary_;
};

TEST_F(SentencePieceTest, IdsEqualTheLibrarys) {
  const Tokenizer tokenizer = Build(vocabulary_);
  EXPECT_EQ(tokenizer.vocab_size(), static_cast<int>(tokens_.size()));
  ASSERT_GE(golden_["cases"].size(), 200u);
  for (const auto& entry : golden_["cases"]) {
    const std::string text = FromBase64(entry["text"].get<std::string>());
    const auto expected = entry["ids"].get<std::vector<int>>();
    const auto ids = tokenizer.Encode(text, {.add_special = false});
    ASSERT_TRUE(ids);
    EXPECT_EQ(Ids(tokenizer, text, {.add_special = false}), expected) << text;
    // U+2581 is how SentencePiece spells a blank: it comes back as one.
    if (text.find("▁") == std::string::npos) {
      EXPECT_EQ(tokenizer.Decode(*ids), text);
    }
  }
}

TEST_F(SentencePieceTest, AddsBosByDefaultAndWhatTheFlagsSay) {
  const std::string text = "the";
  const auto plain = Ids(Build(vocabulary_), text, {.add_special = false});
  auto with_bos = plain;
  with_bos.insert(with_bos.begin(), 1);
  EXPECT_EQ(Ids(Build(vocabulary_), text), with_bos);
  vocabulary_.add_bos = false;
  EXPECT_EQ(Ids(Build(vocabulary_), text), plain);
  vocabulary_.add_eos = true;
  auto with_eos = plain;
  with_eos.push_back(2);
  EXPECT_EQ(Ids(Build(vocabulary_), text), with_eos);
}

TEST_F(SentencePieceTest, StreamsBytesAsCharacters) {
  const Tokenizer tokenizer = Build(vocabulary_);
  const auto byte = [&](int value) { return *tokenizer.Find(fmt::format("<0x{:02X}>", value)); };
  const std::vector<TokenId> smile = {byte(0xF0), byte(0x9F), byte(0x98), byte(0x80)};
  EXPECT_EQ(tokenizer.Decode(smile), "😀");
  EXPECT_EQ(tokenizer.TokenBytes(smile[0]), "\xF0");
  EXPECT_EQ(tokenizer.Decode(std::span(smile).first(3)), "\uFFFD");
}

TEST_F(SentencePieceTest, ControlTokensAreReachedByNameOnlyWhenTrusted) {
  const Tokenizer tokenizer = Build(vocabulary_);
  EXPECT_THAT(Ids(tokenizer, "</s>"), ::testing::Not(::testing::Contains(2)));
  EXPECT_THAT(Ids(tokenizer, "</s>", {.add_special = false, .specials = Specials::kTrusted}),
              ElementsAre(2));
}

TEST(GgufTokenizerTest, RefusesByName) {
  GgufVocabulary vocabulary;
  vocabulary.model = "rwkv";
  auto json = TokenizerJson(vocabulary);
  ASSERT_FALSE(json);
  EXPECT_EQ(json.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(json.error().message, HasSubstr("'rwkv'"));

  vocabulary.model = "gpt2";
  vocabulary.pre = "quen2";
  json = TokenizerJson(vocabulary);
  ASSERT_FALSE(json);
  EXPECT_EQ(json.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(json.error().message, HasSubstr("did you mean 'qwen2'"));
}

TEST(GgufTokenizerTest, NamesABrokenMerge) {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  vocabulary.tokens = {"a", "b"};
  vocabulary.types = {GgufTokenType::kNormal, GgufTokenType::kNormal};
  vocabulary.merges = {"ab"};
  const auto json = TokenizerJson(vocabulary);
  ASSERT_FALSE(json);
  EXPECT_THAT(json.error().message, HasSubstr("'ab' is not two parts"));
}

TEST(JsonTextTest, EscapesAndRepairs) {
  std::string json;
  AppendJsonString("a\"\\\n\x01é\xFF", json);
  EXPECT_EQ(json, "\"a\\\"\\\\\\u000a\\u0001é\uFFFD\"");
  EXPECT_EQ(nlohmann::json::parse(json).get<std::string>(), "a\"\\\n\x01é\uFFFD");
}

// Where a pre-tokenizer cuts the sample (ASCII). Every stretch of the sample is a token and any two
// neighbours merge, so each piece becomes exactly one token.
std::vector<std::string> Pieces(std::string_view pre, std::string_view sample) {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = pre;
  std::vector<std::string> spelled;  // characters in the byte-level spelling
  for (const char c : sample)
    spelled.push_back(c == ' ' ? "Ġ" : c == '\n' ? "Ċ" : std::string(1, c));
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  const auto add = [&](const std::string& token) {
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  };
  for (const std::string& c : spelled) add(c);
  const auto stretch = [&](std::size_t from, std::size_t to) {
    std::string text;
    for (std::size_t i = from; i < to; ++i) text += spelled[i];
    return text;
  };
  for (std::size_t length = 2; length <= spelled.size(); ++length) {
    for (std::size_t at = 0; at + length <= spelled.size(); ++at) {
      add(stretch(at, at + length));
      for (std::size_t cut = at + 1; cut < at + length; ++cut) {
        merges.push_back(stretch(at, cut) + " " + stretch(cut, at + length));
      }
    }
  }
  for (const std::string& token : tokens) vocabulary.tokens.push_back(token);
  vocabulary.types.assign(tokens.size(), GgufTokenType::kNormal);
  for (const std::string& merge : merges) vocabulary.merges.push_back(merge);
  const Tokenizer tokenizer = Build(vocabulary);
  std::vector<std::string> pieces;
  const auto ids = tokenizer.Encode(sample);
  EXPECT_TRUE(ids) << ids.error().message;
  for (const TokenId id : *ids) pieces.emplace_back(tokenizer.TokenBytes(id));
  return pieces;
}

TEST(PreTokenizerTest, EachCutsInItsOwnWay) {
  EXPECT_THAT(Pieces("gpt-2", "It's 123 ok"), ElementsAre("It", "'s", " 123", " ok"));
  EXPECT_THAT(Pieces("smollm", "x 12"), ElementsAre("x", " ", "1", "2"));
  EXPECT_THAT(Pieces("llama-bpe", "IT'S 1234"), ElementsAre("IT", "'S", " ", "123", "4"));
  EXPECT_THAT(Pieces("qwen2", "ab 12"), ElementsAre("ab", " ", "1", "2"));
  EXPECT_THAT(Pieces("deepseek-v3", "a.b 1234"), ElementsAre("a", ".b", " ", "123", "4"));
  EXPECT_THAT(Pieces("deepseek-llm", "ab, 12"), ElementsAre("ab", ",", " ", "1", "2"));
  EXPECT_THAT(Pieces("gpt-4o", "fooBar 12"), ElementsAre("foo", "Bar", " ", "12"));
  EXPECT_THAT(Pieces("kimi-k2", "fooBar's"), ElementsAre("foo", "Bar's"));
  EXPECT_THAT(Pieces("tekken", "fooBar12"), ElementsAre("foo", "Bar", "1", "2"));
}

TEST(PreTokenizerTest, EveryKnownExpressionCompiles) {
  for (const char* name :
       {"default",   "gpt-2",        "phi-2",          "mpt",         "olmo",          "smollm",
        "starcoder", "refact",       "command-r",      "codeshell",   "llama-bpe",     "dbrx",
        "smaug-bpe", "chatglm-bpe",  "glm4",           "qwen2",       "stablelm2",     "hunyuan",
        "qwen35",    "deepseek-llm", "deepseek-coder", "deepseek-v3", "hunyuan-dense", "gpt-4o",
        "tekken",    "kimi-k2"}) {
    std::string joined;
    for (const std::string& piece : Pieces(name, "a b1 2.c")) joined += piece;
    EXPECT_EQ(joined, "a b1 2.c") << name;
  }
}

}  // namespace
}  // namespace tare::model
