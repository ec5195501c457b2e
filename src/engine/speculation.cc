#include "engine/speculation.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <vector>

namespace tare::engine {
namespace {

// Chances before anything is known, with the weight of kPriorTrials guesses. Low for short matches:
// guesses that are not tried show for nothing whether they would have been worth it.
constexpr std::array<double, 5> kPrior = {0.06, 0.2, 0.5, 0.75, 0.9};
constexpr double kPriorTrials = 3.0;

// Of a step's time, for each row more than any seen: low, so that it is tried once.
constexpr double kPriorRowCost = 0.02;
// A time counts for an eighth of the running average, and at most for twice the average: a step
// during which the system was busy with something else says little.
constexpr double kTimeWeight = 0.125;
constexpr double kLargestSurprise = 2.0;
// Numbers of rows not seen for so many steps are tried anew.
constexpr std::uint64_t kForgetSteps = 1000;

// A promised gain below this is within the error of the estimates.
constexpr double kLeastGain = 1.05;
// How much longer a step may take for sequences that have no drafts in it.
constexpr double kMostDelay = 1.25;

}  // namespace

Acceptance::Acceptance(double keep) : keep_(keep) {
  for (std::size_t i = 0; i < kKinds; ++i) {
    kinds_[i] = {kPrior[i] * kPriorTrials, kPriorTrials};
  }
}

Acceptance Acceptance::BeginningLikeThis() const {
  Acceptance one = OfOne();
  for (std::size_t i = 0; i < kKinds; ++i) {
    one.kinds_[i].right = kinds_[i].right / kinds_[i].tried * kPriorTrials;
  }
  return one;
}

std::size_t Acceptance::KindOf(std::uint32_t length) {
  if (length <= 2) return 0;
  if (length <= 3) return 1;
  if (length <= 5) return 2;
  if (length <= 9) return 3;
  return 4;
}

double Acceptance::Chance(std::uint32_t length) const {
  const Kind& kind = kinds_[KindOf(length)];
  return kind.right / kind.tried;
}

void Acceptance::Note(std::uint32_t length, bool right) {
  Kind& kind = kinds_[KindOf(length)];
  kind.right = keep_ * kind.right + (right ? 1.0 : 0.0);
  kind.tried = keep_ * kind.tried + 1.0;
}

std::size_t StepCosts::EntryOf(std::uint32_t rows) {
  // Up to 16 rows one by one, beyond that four entries per doubling.
  const std::uint32_t r = std::max(rows, 1u) - 1;
  if (r < 16) return r;
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(r)) - 1;
  const std::uint32_t quarter = (r >> (exponent - 2)) & 3;
  return std::min<std::size_t>(16 + (exponent - 4) * 4 + quarter, kEntries - 1);
}

bool StepCosts::Fresh(const Entry& entry) const {
  return entry.seen > 0 && steps_ - entry.seen < kForgetSteps;
}

void StepCosts::Note(std::uint32_t rows, Nanos elapsed) {
  ++steps_;
  Entry& entry = entries_[EntryOf(rows)];
  const double seconds = ToSeconds(elapsed);
  if (!Fresh(entry)) {
    entry = {seconds, static_cast<double>(rows), steps_};
    return;
  }
  entry.seen = steps_;
  entry.rows += kTimeWeight * (rows - entry.rows);
  const double counted = std::min(seconds, kLargestSurprise * entry.seconds);
  entry.seconds += kTimeWeight * (counted - entry.seconds);
}

bool StepCosts::Knows(std::uint32_t rows) const { return Fresh(entries_[EntryOf(rows)]); }

double StepCosts::Seconds(std::uint32_t rows) const {
  const std::size_t own = EntryOf(rows);
  if (Fresh(entries_[own])) return entries_[own].seconds;
  std::size_t below = own;
  while (below > 0 && !Fresh(entries_[below])) --below;
  const Entry& low = entries_[below];
  for (std::size_t above = own + 1; above < kEntries; ++above) {
    const Entry& high = entries_[above];
    if (!Fresh(high)) continue;
    if (!Fresh(low)) return high.seconds;
    const double share = (rows - low.rows) / (high.rows - low.rows);
    // A step of more rows that was quicker than one of fewer is noise.
    return std::max(low.seconds, low.seconds + share * (high.seconds - low.seconds));
  }
  return low.seconds * (1.0 + kPriorRowCost * std::max(rows - low.rows, 0.0));
}

void ChooseDrafts(const StepSoFar& step, const StepCosts& costs,
                  std::span<DraftCandidate> candidates) {
  for (DraftCandidate& c : candidates) c.chosen = 0;
  if (candidates.empty() || step.decoding == 0 || !costs.Knows(step.rows)) return;
  // Next drafts by the chance that they, and so all before them, are right.
  struct Next {
    double chance;
    std::size_t candidate;
    bool operator<(const Next& other) const {
      return chance != other.chance ? chance < other.chance : candidate > other.candidate;
    }
  };
  std::priority_queue<Next> queue;
  const auto offer = [&](std::size_t i, std::uint32_t given, double before) {
    const DraftCandidate& c = candidates[i];
    if (given < c.most) queue.push({before * c.acceptance->Chance(c.match_length + given), i});
  };
  for (std::size_t i = 0; i < candidates.size(); ++i) offer(i, 0, 1.0);

  const double alone = costs.Seconds(step.rows);
  const double longest = candidates.size() < step.decoding ? kMostDelay * alone : 1e9;
  double tokens = step.decoding;
  double best = kLeastGain * tokens / alone;
  double seconds = alone;
  std::uint32_t rows = 0, best_rows = 0;
  std::vector<std::size_t> order;  // whose draft each added row is
  std::vector<std::uint32_t> taken(candidates.size(), 0);
  while (!queue.empty() && rows < std::min(step.budget, kMostDraftRows)) {
    const Next next = queue.top();
    queue.pop();
    tokens += next.chance;
    ++rows;
    seconds = std::max(seconds, costs.Seconds(step.rows + rows));
    if (seconds > longest) break;
    order.push_back(next.candidate);
    if (tokens / seconds > best) {
      best = tokens / seconds;
      best_rows = rows;
    }
    offer(next.candidate, ++taken[next.candidate], next.chance);
  }
  for (std::uint32_t i = 0; i < best_rows; ++i) ++candidates[order[i]].chosen;
}

void ChooseAllDrafts(const StepSoFar& step, std::span<DraftCandidate> candidates) {
  for (DraftCandidate& c : candidates) c.chosen = 0;
  std::uint32_t left = std::min(step.budget, kMostDraftRows);
  for (bool gave = true; gave && left > 0;) {
    gave = false;
    for (DraftCandidate& c : candidates) {
      if (left == 0 || c.chosen == c.most) continue;
      ++c.chosen;
      --left;
      gave = true;
    }
  }
}

}  // namespace tare::engine
