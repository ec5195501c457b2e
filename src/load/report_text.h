// Runs as text for a terminal, and as CSV: closing tables, lists, comparisons. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "store/run_record.h"
#include "store/run_store.h"

namespace tare::load {

// The closing table of a run; an invalid one says so first.
std::string RunReport(const store::RunRecord& record);
std::string ListTable(std::span<const store::RunListing> runs);

// Every run against the first.
std::string ComparisonTable(std::span<const store::RunRecord> records);
nlohmann::json ComparisonJson(std::span<const store::RunRecord> records);

// The stored per-request series of a run as CSV.
std::string RequestsCsv(const store::RunRecord& record);

}  // namespace tare::load
