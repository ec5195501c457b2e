// How many pages a step may move and give back to the operating system without anybody noticing.
//
// Aims at kUpkeepSlice per step, well below the promised millisecond: what a page takes varies with
// page faults and with what else the machine does. A page that took longer than thought is believed
// at once, one that was quicker bit by bit.
//
// Thread safety: none; the step thread owns it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/scheduler.h"
#include "engine/step.h"

namespace tare::engine {

inline constexpr Nanos kUpkeepSlice = std::chrono::microseconds(400);

class UpkeepPace {
 public:
  UpkeepPace() = default;
  // Times of one page, measured at start; 0: not known.
  UpkeepPace(Nanos copy_page, Nanos return_page)
      : copy_(ToSeconds(copy_page)), return_(ToSeconds(return_page)) {}

  void Note(const StepPlan& plan, const StepResult& result) {
    Learn(plan.copies.size(), result.copying, copy_);
    Learn(plan.discarded.size(), result.returning, return_);
  }

  // At least one page each: a page larger than the slice must move too, sometime.
  UpkeepLimits Limits() const { return {.moves = PagesIn(copy_), .returns = PagesIn(return_)}; }

 private:
  static constexpr double kMostPages = 256;

  static void Learn(std::size_t pages, Nanos elapsed, double& seconds) {
    if (pages == 0) return;
    const double seen = ToSeconds(elapsed) / static_cast<double>(pages);
    seconds = seen > seconds ? seen : seconds + (seen - seconds) / 16;
  }
  static std::uint32_t PagesIn(double seconds) {
    if (seconds <= 0.0) return static_cast<std::uint32_t>(kMostPages);
    return static_cast<std::uint32_t>(
        std::clamp(ToSeconds(kUpkeepSlice) / seconds, 1.0, kMostPages));
  }

  double copy_ = 0.0;  // seconds per page
  double return_ = 0.0;
};

}  // namespace tare::engine
