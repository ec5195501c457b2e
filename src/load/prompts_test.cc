#include "load/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "load/words.h"

namespace tare::load {
namespace {

using ::testing::HasSubstr;

WorkloadSpec Spec(int input, double shared = 0) {
  WorkloadSpec spec;
  spec.input_tokens = input;
  spec.output_tokens = 7;
  spec.shared_prefix = shared;
  spec.seed = 5;
  return spec;
}

std::size_t WordsIn(const Prompt& prompt) { return Split(prompt.content_json, ' ').size(); }

TEST(SyntheticPrompts, HaveTheWantedLengthAndDifferFromTheFirstWord) {
  TokenCalibration calibration;
  calibration.overhead = 10;
  const auto source = MakeSyntheticPrompts(Spec(110), calibration);
  std::set<std::string> starts;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Prompt prompt = source->Make(i);
    EXPECT_EQ(WordsIn(prompt), 100u);
    EXPECT_EQ(prompt.output_tokens, 7);
    starts.insert(prompt.content_json.substr(0, 16));
  }
  EXPECT_GT(starts.size(), 95u);
  EXPECT_EQ(source->Make(3).content_json, source->Make(3).content_json);
}

TEST(SyntheticPrompts, ShareTheDeclaredPrefix) {
  const auto source = MakeSyntheticPrompts(Spec(100, 0.5), {});
  const std::string a = source->Make(1).content_json;
  const std::string b = source->Make(2).content_json;
  const auto shared = static_cast<std::size_t>(
      std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  const auto words = std::count(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shared), ' ');
  EXPECT_GE(words, 50);
  EXPECT_LE(words, 52);
}

TEST(Words, OnlySingleTokenWordsAreTaken) {
  // A tokenizer that splits words longer than five letters and needs a mark at the beginning.
  const auto count = [](const std::string& text) -> Result<std::size_t> {
    std::size_t tokens = 1;
    std::size_t letters = 0;
    for (const char c : text + " ") {
      if (c == ' ' || c == '\n') {
        if (letters > 0) tokens += letters > 5 ? 2 : 1;
        letters = 0;
        if (c == '\n') ++tokens;
      } else {
        ++letters;
      }
    }
    return tokens;
  };
  const auto words = SingleTokenWords(count);
  ASSERT_TRUE(words.has_value());
  EXPECT_TRUE(std::all_of(words->begin(), words->end(), [](auto w) { return w.size() <= 5; }));
  EXPECT_EQ(words->size(),
            static_cast<std::size_t>(std::count_if(CommonWords().begin(), CommonWords().end(),
                                                   [](auto w) { return w.size() <= 5; })));
  EXPECT_FALSE(SingleTokenWords([](const std::string& text) -> Result<std::size_t> {
                 return text.size();
               }).has_value());
}

class DatasetTest : public ::testing::Test {
 protected:
  ~DatasetTest() override { ::unlink(path_.c_str()); }
  Result<std::unique_ptr<PromptSource>> Load(const std::string& content) {
    EXPECT_TRUE(WriteFileAtomic(path_, content).has_value());
    WorkloadSpec spec = Spec(1);
    spec.dataset = path_;
    return LoadDataset(spec);
  }
  std::string path_ = ::testing::TempDir() + "tare-dataset-" + std::to_string(::getpid());
};

TEST_F(DatasetTest, ReadsTheKnownShapesAndVisitsEveryLineOncePerPass) {
  const auto source = Load(
      "{\"prompt\":\"a \\\"b\\\"\",\"output_tokens\":3}\n"
      "\n{\"messages\":[{\"role\":\"user\",\"content\":\"c\"}],\"max_tokens\":4}\n"
      "{\"conversations\":[{\"from\":\"system\",\"value\":\"s\"},{\"from\":\"human\",\"value\":"
      "\"d\"}]}\n");
  ASSERT_TRUE(source.has_value()) << source.error().message;
  for (std::uint64_t pass = 0; pass < 4; ++pass) {
    std::multiset<std::string> seen;
    for (std::uint64_t i = 0; i < 3; ++i) {
      const Prompt p = (*source)->Make(pass * 3 + i);
      seen.insert(p.content_json + p.messages_json + std::to_string(p.output_tokens));
    }
    EXPECT_EQ(seen, (std::multiset<std::string>{
                        "\"a \\\"b\\\"\"3", "[{\"content\":\"c\",\"role\":\"user\"}]4", "\"d\"7"}));
  }
}

TEST_F(DatasetTest, NamesTheLineThatIsWrong) {
  EXPECT_THAT(Load("{\"prompt\":\"a\"}\n{oops\n").error().message, HasSubstr(":2: not JSON"));
  EXPECT_THAT(Load("{\"answer\":\"a\"}\n").error().message, HasSubstr(":1: no prompt"));
  EXPECT_THAT(Load("\n").error().message, HasSubstr("empty"));
}

}  // namespace
}  // namespace tare::load
