#include "model/lora_config.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace tare::model {
namespace {

using testing::HasSubstr;

Result<LoraConfig> Parse(std::string_view rest) {
  return ParseLoraConfig(fmt::format(R"({{"peft_type":"LORA"{}}})", rest), "adapter_config.json");
}
std::string ErrorOf(std::string_view rest) {
  const auto parsed = Parse(rest);
  return parsed ? "no error" : parsed.error().message;
}

TEST(LoraConfig, ReadsRanksAndScales) {
  const auto config =
      Parse(R"(,"r":16,"lora_alpha":32,"target_modules":["q_proj","v_proj"])").value();
  EXPECT_EQ(config.RankOf("model.layers.0.self_attn.q_proj"), 16);
  EXPECT_DOUBLE_EQ(config.ScaleOf("model.layers.0.self_attn.q_proj"), 2.0);
  EXPECT_THAT(config.targets, testing::ElementsAre("q_proj", "v_proj"));
}

TEST(LoraConfig, RankStabilisedScalesByTheRoot) {
  const auto config = Parse(R"(,"r":16,"lora_alpha":8,"use_rslora":true)").value();
  EXPECT_DOUBLE_EQ(config.ScaleOf("model.layers.0.mlp.up_proj"), 2.0);
}

TEST(LoraConfig, FirstPatternThatFitsCounts) {
  const auto config =
      Parse(R"(,"r":8,"lora_alpha":8,"rank_pattern":{"layers.1.mlp.up_proj":2,"up_proj":4},)"
            R"("alpha_pattern":{"proj":1,"0.mlp.up_proj":16})")
          .value();
  EXPECT_EQ(config.RankOf("model.layers.1.mlp.up_proj"), 2);
  EXPECT_EQ(config.RankOf("model.layers.0.mlp.up_proj"), 4);
  EXPECT_EQ(config.RankOf("model.layers.11.mlp.up_proj"), 4);  // not layer 1
  EXPECT_EQ(config.RankOf("model.layers.0.mlp.down_proj"), 8);
  // "proj" is no module: names end at dots.
  EXPECT_DOUBLE_EQ(config.ScaleOf("model.layers.0.mlp.up_proj"), 16.0 / 4);
}

TEST(LoraConfig, RefusesVariantsByName) {
  EXPECT_THAT(ErrorOf(R"(,"use_dora":true)"), HasSubstr("DoRA"));
  EXPECT_THAT(ErrorOf(R"(,"modules_to_save":["lm_head"])"), HasSubstr("modules_to_save"));
  EXPECT_THAT(ErrorOf(R"(,"bias":"all")"), HasSubstr("bias is \"all\""));
  EXPECT_THAT(ErrorOf(R"(,"lora_bias":true)"), HasSubstr("lora_bias"));
  EXPECT_THAT(ErrorOf(R"(,"init_lora_weights":"pissa_niter_4")"), HasSubstr("'pissa_niter_4'"));
  EXPECT_THAT(ErrorOf(R"(,"invented_tomorrow":3)"), HasSubstr("'invented_tomorrow' is set"));
  EXPECT_THAT(ErrorOf(R"(,"rank_pattern":{"^model.*q_proj":4})"), HasSubstr("regular expression"));
  EXPECT_THAT(ParseLoraConfig(R"({"peft_type":"IA3"})", "c").error().message, HasSubstr("\"IA3\""));
  EXPECT_THAT(ParseLoraConfig("{}", "c").error().message, HasSubstr("missing"));
}

TEST(LoraConfig, TakesWhatChangesNothing) {
  EXPECT_EQ(
      ErrorOf(
          R"(,"use_dora":false,"modules_to_save":null,"rank_pattern":{},"lora_dropout":0.1)"
          R"(,"fan_in_fan_out":true,"init_lora_weights":"gaussian","target_modules":"all-linear")"
          R"(,"invented_tomorrow":null,"loftq_config":{},"layers_to_transform":[1])"),
      "no error");
}

TEST(LoraConfig, NamesSenselessValues) {
  EXPECT_THAT(ErrorOf(R"(,"r":0)"), HasSubstr("key 'r' is 0"));
  EXPECT_THAT(ErrorOf(R"(,"r":1e3)"), HasSubstr("key 'r'"));
  EXPECT_THAT(ErrorOf(R"(,"lora_alpha":"8")"), HasSubstr("key 'lora_alpha'"));
  EXPECT_THAT(ErrorOf(R"(,"lora_alpha":-1e300)"), HasSubstr("key 'lora_alpha'"));
  EXPECT_THAT(ErrorOf(R"(,"target_modules":[3])"), HasSubstr("target_modules"));
  EXPECT_THAT(ErrorOf(R"(,"rank_pattern":{"q_proj":-1})"), HasSubstr("'rank_pattern.q_proj'"));
  EXPECT_THAT(ErrorOf(R"(,"use_rslora":"yes")"), HasSubstr("use_rslora"));
  EXPECT_THAT(ParseLoraConfig("[", "c").error().message, HasSubstr("no JSON object"));
}

TEST(LoraConfig, DeepNestingIsRefusedAndNotWritten) {
  constexpr std::size_t kDepth = 200'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  for (const char* key : {"r", "lora_alpha", "use_rslora", "rank_pattern", "bias"}) {
    EXPECT_THAT(ErrorOf(fmt::format(R"(,"{}":{})", key, deep)), HasSubstr("is array")) << key;
  }
  EXPECT_THAT(ErrorOf(R"(,"target_modules":)" + deep), HasSubstr("is array"));
  EXPECT_THAT(ErrorOf(R"(,"rank_pattern":{"q_proj":)" + deep + "}"), HasSubstr("is array"));
  EXPECT_THAT(ParseLoraConfig(R"({"peft_type":)" + deep + "}", "c").error().message,
              HasSubstr("its peft_type is array"));
}

// A JSON value of at most `depth` levels: mostly such as the keys take, or almost.
rc::Gen<std::string> Value(int depth) {
  const auto plain = rc::gen::weightedOneOf<std::string>(
      {{3, rc::gen::map(rc::gen::inRange(-2, 70'000), [](int n) { return std::to_string(n); })},
       {2, rc::gen::element<std::string>("1e400", "-0.0", "1e-320", "2.5", "1e6", "99999999999")},
       {2, rc::gen::element<std::string>("null", "true", "false")},
       {3, rc::gen::element<std::string>(R"("")", R"("none")", R"("q_proj")", R"("pissa")",
                                         R"("\ud83d\ude00")", R"("^x.*")")}});
  if (depth == 0) return plain;
  const auto joined = [](char open, char close) {
    return [=](const std::vector<std::string>& parts) {
      return open + fmt::format("{}", fmt::join(parts, ",")) + close;
    };
  };
  const auto key = rc::gen::element<std::string>("q_proj", "layers.0.self_attn.q_proj", "", "a*");
  const auto member = rc::gen::apply(
      [](const std::string& name, const std::string& value) {
        return fmt::format(R"("{}":{})", name, value);
      },
      key, Value(depth - 1));
  const auto few = [](const rc::Gen<std::string>& one) {
    return rc::gen::resize(4, rc::gen::container<std::vector<std::string>>(one));
  };
  return rc::gen::weightedOneOf<std::string>(
      {{3, plain},
       {1, rc::gen::map(few(Value(depth - 1)), joined('[', ']'))},
       {2, rc::gen::map(few(member), joined('{', '}'))}});
}

RC_GTEST_PROP(LoraConfig, AnyValueIsReadOrRefused, ()) {
  const auto key = rc::gen::element<std::string>("r", "lora_alpha", "use_rslora", "rank_pattern",
                                                 "alpha_pattern", "target_modules", "bias");
  const std::string rest = fmt::format(R"(,"{}":{})", *key, *Value(2));
  const auto parsed = Parse(rest);
  RC_CLASSIFY(parsed.has_value(), "read");
  if (!parsed) {
    // It is JSON, so what is wrong is a value, but for numbers no double holds.
    RC_ASSERT(parsed.error().message.find("no JSON object") == std::string::npos ||
              rest.find("1e400") != std::string::npos);
    return;
  }
  RC_ASSERT(parsed->RankOf("model.layers.0.self_attn.q_proj") >= 1);
  RC_ASSERT(std::isfinite(parsed->ScaleOf("model.layers.0.self_attn.q_proj")));
}

// Text that is no JSON most of the time.
RC_GTEST_PROP(LoraConfig, AnyTextIsReadOrRefused, (const std::string& text)) {
  const auto parsed = Parse(R"(,"r":)" + text);
  if (parsed) RC_ASSERT(parsed->RankOf("model.layers.0.self_attn.q_proj") >= 1);
}

}  // namespace
}  // namespace tare::model
