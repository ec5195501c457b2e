// How much of the machine other programs use while a benchmark runs: with it stands or falls what
// its percentiles mean.
//
// Thread safety: none.
#pragma once

#include <functional>

#include "base/types.h"

namespace tare::bench {

class Neighbours {
 public:
  // `own_children`: processor seconds so far of the processes that belong to the benchmark and are
  // not this one.
  explicit Neighbours(std::function<double()> own_children);
  // Cores that programs of others kept busy, on average since the last call or the making: from
  // /proc/stat, less what this process and its children used. Stolen time counts as others'.
  double Cores();

 private:
  struct Reading {
    double wall_s = 0, busy_s = 0, own_s = 0;
  };
  Reading Read() const;
  std::function<double()> own_children_;
  Reading last_;
};

}  // namespace tare::bench
