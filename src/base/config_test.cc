#include "base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tare::config {
namespace {

using ::testing::HasSubstr;

enum class Dtype { kF32, kBf16, kInt4 };
const Value::Names<Dtype> kDtypes = {
    {"f32", Dtype::kF32}, {"bf16", Dtype::kBf16}, {"int4", Dtype::kInt4}};

Document MustParse(std::string_view text) {
  auto document = Document::Parse(text, "plan.yaml");
  EXPECT_TRUE(document) << document.error().message;
  return std::move(*document);
}

std::string ParseError(std::string_view text) {
  auto document = Document::Parse(text, "plan.yaml");
  return document ? "" : document.error().message;
}

std::string FinishError(const Document& document) {
  const Status status = document.Finish();
  return status ? "" : status.error().message;
}

TEST(Config, ReadsEveryType) {
  const Document document = MustParse(R"(
name: "a plan"
users: 8
share: 85%
price: 0.12/h
rate: 30/min
length: 1m30s
memory: 1.5GiB
ratio: 2.5e-1
fast: true
candidates:
  - {name: first, dtype: int4}
  - name: second
    dtype: bf16
extra:
  free: {a: 1, b: [x, 2.5, null, "3"]}
)");
  const Value root = document.root();
  EXPECT_EQ(root["name"].String(), "a plan");
  EXPECT_EQ(root["users"].Int(1, 100), 8);
  EXPECT_DOUBLE_EQ(root["share"].Fraction(), 0.85);
  EXPECT_DOUBLE_EQ(root["price"].UsdPerHour(), 0.12);
  EXPECT_DOUBLE_EQ(root["rate"].RatePerSecond(), 0.5);
  EXPECT_EQ(root["length"].Duration(), Nanos(std::chrono::seconds(90)));
  EXPECT_EQ(root["memory"].ByteSize(), (std::uint64_t{3} << 30) / 2);
  EXPECT_DOUBLE_EQ(root["ratio"].Number(), 0.25);
  EXPECT_TRUE(root["fast"].Bool());
  EXPECT_EQ(root["absent"].IntOr(3), 3);
  EXPECT_EQ(root["absent"].StringOr("none"), "none");
  const auto candidates = root["candidates"].List();
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_EQ(candidates[0]["name"].String(), "first");
  EXPECT_EQ(candidates[0]["dtype"].Choice(kDtypes), Dtype::kInt4);
  EXPECT_EQ(candidates[1]["name"].String(), "second");
  EXPECT_EQ(candidates[1]["dtype"].Choice(kDtypes), Dtype::kBf16);
  EXPECT_EQ(candidates[1]["dtype"].path(), "candidates[1].dtype");
  EXPECT_EQ(candidates[1]["dtype"].line(), 14);
  EXPECT_EQ(root["extra"].Json().dump(), R"({"free":{"a":1,"b":["x",2.5,null,"3"]}})");
  EXPECT_EQ(FinishError(document), "");
}

TEST(Config, UnknownKeyNamesTheNearest) {
  const Document document = MustParse("duraton: 60s\nzebra: 1\n");
  (void)document.root()["duration"].DurationOr(Nanos(0));
  (void)document.root()["users"].IntOr(1);
  EXPECT_EQ(FinishError(document),
            "plan.yaml:1: duraton: unknown key 'duraton'; did you mean 'duration'?\n"
            "plan.yaml:2: zebra: unknown key 'zebra'; known here: duration, users");
  EXPECT_EQ(document.Finish().error().param, "duraton");
}

TEST(Config, WrongChoiceListsTheRightOnes) {
  const Document document = MustParse("candidates:\n  - name: a\n    dtype: f15\n");
  const auto items = document.root()["candidates"].List();
  (void)items[0]["name"].String();
  (void)items[0]["dtype"].Choice(kDtypes);
  EXPECT_EQ(FinishError(document),
            "plan.yaml:3: candidates[0].dtype: expected one of f32, bf16, int4; got 'f15'");
}

TEST(Config, SeveralMistakesComeTogetherInOrder) {
  const Document document = MustParse("users: many\nlength: 60\nname: ''\nlist: 3\nfast: yes\n");
  const Value root = document.root();
  (void)root["list"].List();
  (void)root["fast"].Bool();
  (void)root["name"].String();
  (void)root["missing"].String();
  (void)root["length"].Duration();
  (void)root["users"].Int(1, 10);
  const std::string message = FinishError(document);
  EXPECT_THAT(message, HasSubstr("plan.yaml:1: missing: is missing; expected text"));
  EXPECT_THAT(message, HasSubstr("plan.yaml:1: users: expected a whole number, got 'many'"));
  EXPECT_THAT(message, HasSubstr("plan.yaml:2: length: expected a duration with its unit"));
  EXPECT_THAT(message, HasSubstr("plan.yaml:3: name: is empty"));
  EXPECT_THAT(message, HasSubstr("plan.yaml:4: list: expected a list, got a single value"));
  EXPECT_THAT(message, HasSubstr("plan.yaml:5: fast: expected true or false, got 'yes'"));
}

TEST(Config, RangesAreNamed) {
  const Document document = MustParse("users: 0\nratio: 7\n");
  EXPECT_EQ(document.root()["users"].Int(1, 10), 1);
  (void)document.root()["ratio"].Number(0, 1);
  EXPECT_THAT(FinishError(document), HasSubstr("users: expected 1 to 10, got 0"));
  EXPECT_THAT(FinishError(document), HasSubstr("ratio: expected 0 to 1, got 7"));
}

TEST(Config, MapWhereAScalarIsAndBack) {
  const Document document = MustParse("slo: fast\nname: {a: 1}\nempty:\n");
  (void)document.root()["slo"]["ttft"].DurationOr(Nanos(0));
  (void)document.root()["name"].String();
  (void)document.root()["empty"].String();
  const std::string message = FinishError(document);
  EXPECT_THAT(message, HasSubstr("slo: expected a map of keys, got a single value"));
  EXPECT_THAT(message, HasSubstr("name: expected text, got a map"));
  EXPECT_THAT(message, HasSubstr("empty: expected text, got nothing"));
}

TEST(Config, FreeNamesAreEntries) {
  const Document document = MustParse("machines: {b: 1/h, a: 2/h}\n");
  const auto entries = document.root()["machines"].Entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].first, "b");
  EXPECT_DOUBLE_EQ(entries[1].second.UsdPerHour(), 2);
  EXPECT_EQ(FinishError(document), "");
}

TEST(Config, RefusesWhatIsNotOnePlainDocument) {
  EXPECT_EQ(ParseError("a: 1\nb: 2\na: 3\n"),
            "plan.yaml:3: key 'a' is given twice (first on line 1)");
  EXPECT_THAT(ParseError("a: [1, 2\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(ParseError(""), HasSubstr("empty"));
  EXPECT_THAT(ParseError("# only a comment\n"), HasSubstr("empty"));
  EXPECT_THAT(ParseError("a: 1\n---\nb: 2\n"), HasSubstr("second document"));
  EXPECT_THAT(ParseError("a: !!binary aGk=\n"), HasSubstr("tag"));
  EXPECT_THAT(ParseError("a: \xff\n"), HasSubstr("UTF-8"));
  EXPECT_THAT(ParseError("? [a, b]\n: 1\n"), HasSubstr("key must be a word"));
  EXPECT_THAT(ParseError(std::string(kMaxBytes + 1, ' ')), HasSubstr("limit"));
  EXPECT_THAT(ParseError("a: *nothing\n"), HasSubstr("not valid YAML"));
}

TEST(Config, AliasesWorkWithinLimits) {
  const Document document = MustParse("base: &b {users: 2}\nother: *b\n");
  EXPECT_EQ(document.root()["base"]["users"].Int(), 2);
  EXPECT_EQ(document.root()["other"]["users"].Int(), 2);
  EXPECT_EQ(FinishError(document), "");
}

TEST(Config, BombsAreRefusedQuickly) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 20; ++i) {
    bomb += fmt::format("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}]\n", i,
                        i - 1);
  }
  EXPECT_THAT(ParseError(bomb), HasSubstr("aliases expand to more than"));
  EXPECT_THAT(ParseError("a: &a [*a]\n"), HasSubstr("contains it"));
  EXPECT_THAT(ParseError("a: " + std::string(100, '[') + std::string(100, ']')),
              HasSubstr("nested deeper"));
  EXPECT_NE(ParseError(std::string(100'000, '[')), "");
  std::string chain = "a0: &a0 [x]\n";
  for (int i = 1; i < 100; ++i) chain += fmt::format("a{0}: &a{0} [*a{1}]\n", i, i - 1);
  EXPECT_THAT(ParseError(chain), HasSubstr("nested deeper"));
  std::string deep;
  for (int i = 0; i < 500; ++i) deep += std::string(static_cast<std::size_t>(i), ' ') + "k:\n";
  EXPECT_NE(ParseError(deep), "");
}

RC_GTEST_PROP(Config, NeverCrashesOnAnyText, (const std::string& text)) {
  if (auto document = Document::Parse(text, "x")) {
    (void)document->root()["a"].IntOr(1);
    (void)document->root().Json();
    (void)document->Finish();
  }
}

}  // namespace
}  // namespace tare::config
