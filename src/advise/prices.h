// Machine prices: the price file (catalog/prices.yaml, built into the program) and the choice of
// the price a candidate is charged.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "advise/plan.h"
#include "base/result.h"

namespace tare::advise {

struct Price {
  double usd_per_hour = 0;  // of one machine
  std::string label;        // "NVIDIA L4, one accelerator"
  std::string tag;          // "claimed" or "assumed"
  std::string source;
  std::string date;  // YYYY-MM-DD, when the source was read
};

struct PriceList {
  Price per_vcpu;  // of this machine; usd_per_hour is per core
  std::map<std::string, Price> machines;
};

Result<PriceList> ParsePriceList(std::string_view text, std::string source);
// `path` empty: the list built into the program.
Result<PriceList> LoadPriceList(const std::filesystem::path& path);

// A candidate's own price, else its machine's, else the plan's, else (on this machine) the price
// per core × `vcpus`. Remote and stored candidates without any of these are an error.
Result<Price> PriceOf(const Candidate& candidate, const Plan& plan, const PriceList& list,
                      int vcpus);

}  // namespace tare::advise
