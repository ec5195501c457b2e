#include "model/lora_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

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

RC_GTEST_PROP(LoraConfig, AnyTextIsReadOrRefused, ()) {
  const auto key = *rc::gen::element<std::string>("r", "lora_alpha", "use_rslora", "rank_pattern",
                                                  "alpha_pattern", "target_modules", "bias");
  const auto value = *rc::gen::arbitrary<std::string>();
  const auto parsed = ParseLoraConfig(fmt::format(R"({{"peft_type":"LORA","{}":{}}})", key, value),
                                      "adapter_config.json");
  if (!parsed) return;
  RC_ASSERT(parsed->RankOf("model.layers.0.self_attn.q_proj") >= 1);
  RC_ASSERT(std::isfinite(parsed->ScaleOf("model.layers.0.self_attn.q_proj")));
}

}  // namespace
}  // namespace tare::model
