// The routing plan the gateway loads as it is (routing.yaml, schema tare.routing/1) and the flags
// of the recommended server (serve.args). docs/ADVISE.md describes both.
#pragma once

#include <string>

#include "advise/report.h"

namespace tare::advise {

std::string RenderRouting(const Report& report);

// One word a line, `#` comments: the flags of `tare serve` for the first-ranked local candidate,
// without model and port; only comments when there is none.
std::string RenderServeArguments(const Report& report);

}  // namespace tare::advise
