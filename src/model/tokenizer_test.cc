#include "model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <thread>

#include "model/detokenizer.h"

namespace tare::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A byte-level BPE small enough to work out by hand: bytes a, b, c, blank and those of "é" and of
// U+FFFD, merges "a b", "ab c" and "Ġ a", control tokens <s> and <|end|>, the added text token
// <think>.
constexpr std::string_view kTiny = R"({
  "version": "1.0",
  "added_tokens": [
    {"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": true},
    {"id": 1, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": true},
    {"id": 21, "content": "<think>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": false}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                    "use_regex": true},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {"<s>": 0, "<|end|>": 1, "a": 2, "b": 3, "c": 4, "Ġ": 5, "Ã": 6, "©": 7, "ab": 8,
              "abc": 9, "Ġa": 10, "<": 11, "|": 12, ">": 13, "e": 14, "n": 15, "d": 16, "s": 17,
              "ï": 18, "¿": 19, "½": 20},
    "merges": ["a b", "ab c", "Ġ a"]}
})";

std::vector<int> Ids(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options) {
  auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids) << ids.error().message;
  std::vector<int> result;
  for (const TokenId id : *ids) result.push_back(ToInt(id));
  return result;
}

class TinyTokenizerTest : public ::testing::Test {
 protected:
  Tokenizer tokenizer_ = *Tokenizer::FromJson(kTiny);
  const EncodeOptions text_{.add_special = false};
  const EncodeOptions trusted_{.add_special = false, .specials = Specials::kTrusted};
  const EncodeOptions guarded_{.add_special = false, .specials = Specials::kGuarded};
};

TEST_F(TinyTokenizerTest, MergesByRank) {
  EXPECT_THAT(Ids(tokenizer_, "abcab", text_), ElementsAre(9, 8));
  EXPECT_THAT(Ids(tokenizer_, "a ab", text_), ElementsAre(2, 5, 8));
  EXPECT_THAT(Ids(tokenizer_, "a a", text_), ElementsAre(2, 10));
  EXPECT_THAT(Ids(tokenizer_, "", text_), IsEmpty());
}

TEST_F(TinyTokenizerTest, AddsWhatThePostProcessorSays) {
  EXPECT_THAT(Ids(tokenizer_, "ab", {}), ElementsAre(0, 8));
  EXPECT_THAT(tokenizer_.added_ids(), ElementsAre(TokenId{0}));
}

TEST_F(TinyTokenizerTest, ControlTokensInTextAreText) {
  EXPECT_THAT(Ids(tokenizer_, "<|end|>", text_), ElementsAre(11, 12, 14, 15, 16, 12, 13));
  EXPECT_THAT(Ids(tokenizer_, "a<s>", text_), ElementsAre(2, 11, 17, 13));
  // An added token that is no control token is part of the text.
  EXPECT_THAT(Ids(tokenizer_, "a<think>", text_), ElementsAre(2, 21));
}

TEST_F(TinyTokenizerTest, ControlTokensInTrustedTextAreHonoured) {
  EXPECT_THAT(Ids(tokenizer_, "<s>ab<|end|>", trusted_), ElementsAre(0, 8, 1));
}

TEST_F(TinyTokenizerTest, AMarkKeepsANameTextAndLeavesNoTrace) {
  const std::string marked = "<s>ab<" + std::string(kGuardMark) + "|end|><|end|>";
  EXPECT_THAT(Ids(tokenizer_, marked, guarded_), ElementsAre(0, 8, 11, 12, 14, 15, 16, 12, 13, 1));
}

TEST_F(TinyTokenizerTest, IllFormedTextIsReplaced) {
  EXPECT_THAT(Ids(tokenizer_, "a\xFF", text_), ElementsAre(2, 18, 19, 20));
}

TEST_F(TinyTokenizerTest, TokensKnowTheirBytes) {
  EXPECT_EQ(tokenizer_.vocab_size(), 22);
  EXPECT_EQ(tokenizer_.TokenBytes(TokenId{10}), " a");
  EXPECT_EQ(tokenizer_.TokenPiece(TokenId{10}), "Ġa");
  EXPECT_EQ(tokenizer_.TokenBytes(TokenId{6}), "\xC3");
  EXPECT_EQ(tokenizer_.TokenBytes(TokenId{1}), "<|end|>");
  EXPECT_EQ(tokenizer_.TokenBytes(TokenId{22}), "");
  EXPECT_EQ(tokenizer_.TokenBytes(TokenId{-1}), "");
  EXPECT_TRUE(tokenizer_.IsSpecial(TokenId{1}));
  EXPECT_FALSE(tokenizer_.IsSpecial(TokenId{21}));
  EXPECT_FALSE(tokenizer_.IsSpecial(TokenId{-1}));
  EXPECT_EQ(tokenizer_.Find("abc"), TokenId{9});
  EXPECT_EQ(tokenizer_.Find("nope"), std::nullopt);
}

TEST_F(TinyTokenizerTest, DecodesAndSkipsControlTokens) {
  const std::vector<TokenId> ids = {TokenId{0}, TokenId{9}, TokenId{10},
                                    TokenId{6}, TokenId{7}, TokenId{1}};
  EXPECT_EQ(tokenizer_.Decode(ids), "abc aé");
  EXPECT_EQ(tokenizer_.Decode(ids, /*skip_special=*/false), "<s>abc aé<|end|>");
}

TEST_F(TinyTokenizerTest, StreamHoldsBackHalfACharacter) {
  Detokenizer stream(tokenizer_);
  EXPECT_EQ(stream.Push(TokenId{2}), "a");
  EXPECT_EQ(stream.Push(TokenId{6}), "");
  EXPECT_EQ(stream.Push(TokenId{7}), "é");
  EXPECT_EQ(stream.Push(TokenId{6}), "");
  EXPECT_EQ(stream.Push(TokenId{2}), "\uFFFDa");
  EXPECT_EQ(stream.Push(TokenId{6}), "");
  EXPECT_EQ(stream.Finish(), "\uFFFD");
  EXPECT_EQ(stream.Finish(), "");
}

TEST_F(TinyTokenizerTest, StreamEqualsDecode) {
  EXPECT_TRUE(rc::check([this](const std::vector<std::uint8_t>& raw, bool skip) {
    std::vector<TokenId> ids;
    for (const std::uint8_t byte : raw) ids.push_back(static_cast<TokenId>(byte % 24));
    Detokenizer stream(tokenizer_, {.skip_special = skip});
    std::string streamed;
    for (const TokenId id : ids) {
      const std::string piece = stream.Push(id);
      std::string check;
      RC_ASSERT(AppendUtf8Lossy(piece, check) == 0u && check == piece);
      streamed += piece;
    }
    RC_ASSERT(streamed + stream.Finish() == tokenizer_.Decode(ids, skip));
  }));
}

TEST_F(TinyTokenizerTest, ManyThreadsShareIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < 200; ++i) {
        ASSERT_THAT(Ids(tokenizer_, "abcab", text_), ElementsAre(9, 8));
        ASSERT_THAT(Ids(tokenizer_, "<s>ab", trusted_), ElementsAre(0, 8));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(TokenizerTest, RefusesWhatIsNoTokenizer) {
  for (std::string_view json : {"", "{", "[]", "{}", "null", R"({"model": {"type": "BPE"}})",
                                R"({"version": "1.0", "model": {"type": "Oracle"}})"}) {
    const auto result = Tokenizer::FromJson(json);
    ASSERT_FALSE(result) << json;
    EXPECT_EQ(result.error().kind, ErrorKind::kCorrupt);
    EXPECT_THAT(result.error().message, HasSubstr("not a usable tokenizer"));
  }
}

std::string Replaced(std::string_view from, std::string_view to) {
  std::string json(kTiny);
  const auto at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return json.replace(at, from.size(), to);
}

TEST(TokenizerTest, RefusesHostileVocabularies) {
  // An id near 2^32 must not become a table of 2^32 entries.
  EXPECT_FALSE(Tokenizer::FromJson(Replaced("\"½\": 20", "\"½\": 4294967290")));
  // An added token whose id is not the one the file gives it.
  EXPECT_FALSE(Tokenizer::FromJson(Replaced("\"id\": 21", "\"id\": 23")));
  // A merge of pieces that are not there.
  EXPECT_FALSE(Tokenizer::FromJson(Replaced("\"a b\"", "\"x y\"")));
  // An empty vocabulary.
  EXPECT_FALSE(Tokenizer::FromJson(
      R"({"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}})"));
}

}  // namespace
}  // namespace tare::model
