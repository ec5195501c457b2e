// Every family there is, each defined in its own family_NAME.cc.
#pragma once

#include "model/family.h"

namespace tare::model {

extern const Family kLlama;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kQwen3Moe;
extern const Family kDeepseekV2;
extern const Family kDeepseekV3;
extern const Family kKimiK2;
extern const Family kBert;

}  // namespace tare::model
