// Costs that comparisons leave out (SPEC row EC6): compute of drift detection, people who write
// prompts, audits shared between options. Amounts are in the caller's currency.
#pragma once

#include <span>
#include <vector>

namespace tare::econ {

struct DriftDetection {
  double cpu_seconds_per_call_batch = 0;  // for example 0.120
  double calls_per_batch = 10'000;
  double calls_per_day = 0;
  double cost_per_cpu_hour = 0;
};
double DriftCpuHoursPerYear(const DriftDetection& drift);
double DriftCostPerYear(const DriftDetection& drift);

struct PromptStaff {
  double people = 0;
  double cost_per_person_year = 0;
  double platform_staff_cost_per_year = 0;  // the whole team, these people included
};
double PromptStaffCostPerYear(const PromptStaff& staff);
double PromptStaffShare(const PromptStaff& staff);  // of the platform staff's cost

// Shares of a total in proportion to each part; they add up to 1.
std::vector<double> ProportionalShares(std::span<const double> parts);

}  // namespace tare::econ
