// What a run of conversations shows that single requests cannot: how much of each turn's prompt the
// server found in its prefix cache, against how much it had seen in the turn before. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load/generator.h"
#include "load/recorder.h"

namespace tare::load {

// {"begun", "complete", "failed", "turns": [{"turn", "requests", "failed", "input_tokens",
//  "cached_share", "reusable_share", "ttft_p50_s"}, …]}. Shares are of the prompt tokens the server
// told; null when it does not tell. Turns count from 1; of the measured part.
nlohmann::json SessionFacts(const Recorder& recorder,
                            const std::vector<ThreadMeasurement>& threads);

// The same for people; empty when the record's workload has no sessions.
std::string SessionTable(const nlohmann::json& workload);
std::string SessionHtml(const nlohmann::json& workload);

}  // namespace tare::load
