// The command line that serves a local candidate.
#pragma once

#include <string>
#include <vector>

#include "advise/plan.h"

namespace tare::advise {

// "--dtype int4 --threads 2 …": what sets the candidate apart, without model and port.
std::vector<std::string> ServeFlags(const Candidate& candidate);

// `program serve MODEL --port PORT` and the flags above.
std::vector<std::string> ServeCommand(const std::string& program, const Candidate& candidate,
                                      int port);

}  // namespace tare::advise
