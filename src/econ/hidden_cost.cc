#include "econ/hidden_cost.h"

#include <numeric>

#include "econ/volume_cost.h"

namespace tare::econ {

double DriftCpuHoursPerYear(const DriftDetection& drift) {
  const double batches_per_day = drift.calls_per_day / drift.calls_per_batch;
  return batches_per_day * drift.cpu_seconds_per_call_batch * kDaysPerYear / 3600;
}

double DriftCostPerYear(const DriftDetection& drift) {
  return DriftCpuHoursPerYear(drift) * drift.cost_per_cpu_hour;
}

double PromptStaffCostPerYear(const PromptStaff& staff) {
  return staff.people * staff.cost_per_person_year;
}

double PromptStaffShare(const PromptStaff& staff) {
  return PromptStaffCostPerYear(staff) / staff.platform_staff_cost_per_year;
}

std::vector<double> ProportionalShares(std::span<const double> parts) {
  const double total = std::accumulate(parts.begin(), parts.end(), 0.0);
  std::vector<double> shares;
  shares.reserve(parts.size());
  for (double part : parts) shares.push_back(total == 0 ? 0 : part / total);
  return shares;
}

}  // namespace tare::econ
