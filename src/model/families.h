// Every family there is, each defined in its own family_NAME.cc.
#pragma once

#include "model/family.h"

namespace tare::model {

extern const Family kLlama;
extern const Family kQwen2;
extern const Family kQwen3;

}  // namespace tare::model
