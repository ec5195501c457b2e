// report.json: what scripts read (docs/ADVISE.md lists the keys). Keys are stable.
#pragma once

#include <nlohmann/json.hpp>

#include "advise/report.h"

namespace tare::advise {

nlohmann::json ToJson(const Report& report);

}  // namespace tare::advise
