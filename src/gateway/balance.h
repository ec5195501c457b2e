// In which order a request tries its route's targets: the rules, without any I/O.
//
// Targets of the request's tier come before the others, which are left as a way out. Within a tier:
//   ordered       as written, best first
//   weighted      at random, in proportion to the weights; the draws of a sticky route come from
//                 the user's hash, which is weighted rendezvous hashing: a user keeps a target, and
//                 removing one target moves only its own users
//   least_tokens  fewest outstanding tokens per weight first
//   prefix        the target that saw the longest beginning of this prompt, unless it is clearly
//                 busier than the idlest (else popular prefixes would pile up on one server), then
//                 as least_tokens
//
// Thread safety: pure functions.
// Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006), for drawing
// by exponential keys; Thaler and Ravishankar (1998) for rendezvous hashing.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tare::gateway {

enum class Balance { kOrdered, kWeighted, kLeastTokens, kPrefix };

struct BalanceTarget {
  double weight = 1;             // > 0; relative speed
  double outstanding = 0;        // tokens promised to requests under way
  std::size_t prefix_bytes = 0;  // of the prompt's beginning that it saw lately
  bool other_tier = false;
  double draw = 0.5;  // in (0, 1): random, or StickyDraw
};

// Positions in `targets`, first choice first.
std::vector<std::size_t> OrderTargets(Balance balance, std::span<const BalanceTarget> targets);

// The same for the same user and target, uniform over users.
double StickyDraw(std::string_view user, std::string_view target);

}  // namespace tare::gateway
