#include "model/hf_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "model/pre_tokenizers.h"
#include "model/test_base64.h"

namespace tare::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kTokenizer = R"({
  "version": "1.0",
  "added_tokens": [
    {"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": true},
    {"id": 1, "content": "</s>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": true},
    {"id": 2, "content": "<|im_end|>", "single_word": false, "lstrip": false, "rstrip": false,
     "normalized": false, "special": true}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                    "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
              "use_regex": true},
  "model": {"type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "<|im_end|>": 2, "a": 3, "b": 4},
            "merges": []}
})";

class HfFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const char* name, std::string_view content) {
    ASSERT_TRUE(WriteFileAtomic(folder_ / name, content));
  }
  std::shared_ptr<const Text> Load() {
    auto text = LoadText(folder_);
    EXPECT_TRUE(text) << text.error().message;
    return text ? *text : nullptr;
  }

  std::filesystem::path folder_;
};

TEST_F(HfFolderTest, ReadsWhatTheFolderSays) {
  Write("tokenizer.json", kTokenizer);
  Write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
      "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"})");
  Write("generation_config.json",
        R"({"eos_token_id": [1, 2, 99], "temperature": 0.6, "top_p": 0.95, "top_k": 20})");
  const auto text = Load();
  ASSERT_TRUE(text);
  EXPECT_EQ(text->bos(), TokenId{0});
  EXPECT_EQ(text->eos(), TokenId{1});
  EXPECT_THAT(text->end_ids(), ElementsAre(TokenId{1}, TokenId{2}));
  EXPECT_EQ(text->sampling().temperature, 0.6f);
  EXPECT_EQ(text->sampling().top_k, 20);
  EXPECT_FALSE(text->sampling().min_p);
  const auto ids = text->EncodeChat({.messages_json = R"([{"role":"user","content":"ab</s>"}])"});
  ASSERT_TRUE(ids) << ids.error().message;
  // The template's BOS is a token; the message's "</s>" is not, and this
  // vocabulary has no "<".
  EXPECT_THAT(*ids, ElementsAre(TokenId{0}, TokenId{3}, TokenId{4}));
}

TEST_F(HfFolderTest, TheTemplateFileGoesFirst) {
  Write("tokenizer.json", kTokenizer);
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "old"}]})");
  EXPECT_EQ(*Load()->RenderChat({.messages_json = "[]"}), "old");
  Write("chat_template.jinja", "new");
  EXPECT_EQ(*Load()->RenderChat({.messages_json = "[]"}), "new");
}

TEST_F(HfFolderTest, LlamaFlagsDecideAboutBos) {
  Write("tokenizer.json", kTokenizer);
  Write("tokenizer_config.json",
        R"({"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>",
      "eos_token": "</s>", "add_bos_token": true, "add_eos_token": true})");
  EXPECT_THAT(*Load()->EncodePrompt("a"), ElementsAre(TokenId{0}, TokenId{3}, TokenId{1}));
}

TEST_F(HfFolderTest, ABadTemplateCostsOnlyChats) {
  Write("tokenizer.json", kTokenizer);
  Write("chat_template.jinja", "{% if %}");
  const auto text = Load();
  EXPECT_THAT(*text->EncodePrompt("ab"), ElementsAre(TokenId{3}, TokenId{4}));
  const auto ids = text->EncodeChat({.messages_json = "[]"});
  ASSERT_FALSE(ids);
  EXPECT_EQ(ids.error().kind, ErrorKind::kUnsupported);
}

TEST_F(HfFolderTest, NamesTheFileAtFault) {
  auto text = LoadText(folder_);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("neither tokenizer.json nor tiktoken.model"));
  Write("tokenizer.json", "{");
  text = LoadText(folder_);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("tokenizer.json"));
  Write("tokenizer.json", kTokenizer);
  Write("tokenizer_config.json", "[");
  text = LoadText(folder_);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("tokenizer_config.json"));
}

// A vocabulary and ids made by the tiktoken library with Kimi-K2's pattern
// (tests/golden/tiktoken_ids.py).
class TiktokenTest : public HfFolderTest {
 protected:
  void SetUp() override {
    HfFolderTest::SetUp();
    auto file = ReadFile(TARE_SOURCE_DIR "/tests/golden/tiktoken_ids.json");
    ASSERT_TRUE(file) << file.error().message;
    golden_ = nlohmann::json::parse(*file);
    nlohmann::json named = nlohmann::json::object();
    for (const auto& [name, id] : golden_["special"].items()) {
      named[std::to_string(id.get<int>())] = {{"content", name}, {"special", true}};
    }
    Write("tiktoken.model", golden_["model"].get<std::string>());
    Write("tokenizer_config.json",
          nlohmann::json(
              {{"added_tokens_decoder", named}, {"bos_token", "[BOS]"}, {"eos_token", "[EOS]"}})
              .dump());
  }
  nlohmann::json golden_;
};

TEST_F(TiktokenTest, IdsEqualTheLibrarys) {
  const auto text = Load();
  ASSERT_TRUE(text);
  ASSERT_GE(golden_["cases"].size(), 200u);
  for (const auto& entry : golden_["cases"]) {
    const std::string input = FromBase64(entry["text"].get<std::string>());
    for (const char* key : {"ids", "trusted_ids"}) {
      const bool trusted = key == std::string_view("trusted_ids");
      const auto& ids = text->tokenizer().Encode(
          input, {.specials = trusted ? Specials::kTrusted : Specials::kText});
      ASSERT_TRUE(ids) << ids.error().message;
      std::vector<int> got;
      for (const TokenId id : *ids) got.push_back(ToInt(id));
      EXPECT_EQ(got, entry.value(key, entry["ids"]).get<std::vector<int>>()) << input;
      EXPECT_EQ(text->tokenizer().Decode(*ids, false), input);
    }
  }
}

TEST_F(TiktokenTest, SpecialsFollowTheRanks) {
  const auto text = Load();
  ASSERT_TRUE(text);
  EXPECT_EQ(text->tokenizer().vocab_size(), 416 + 256);
  EXPECT_EQ(text->bos(), TokenId{416});
  EXPECT_TRUE(text->IsEnd(TokenId{418}));  // <|im_end|>
  EXPECT_EQ(text->tokenizer().Find("<|reserved_token_420|>"), TokenId{420});
}

TEST_F(TiktokenTest, RefusesBrokenFiles) {
  for (const char* content :
       {"", "YQ==", "YQ== x\n", "!!! 0\n", "YQ== 0\nYQ== 1\n", "YQ== 0\n", "YQ== 4294967295\n"}) {
    Write("tiktoken.model", content);
    const auto text = LoadText(folder_);
    ASSERT_FALSE(text) << content;
    EXPECT_THAT(text.error().message, HasSubstr("tiktoken.model"));
  }
}

}  // namespace
}  // namespace tare::model
