// What this machine can do at most, measured: the yardstick every benchmark line is held against.
//
// Rates are what a loop that does nothing else reaches, so a kernel's share of them is its
// efficiency. Measuring takes about two seconds.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace tare::kernels {

// A rate with one thread and with all threads of the pool together.
struct Rate {
  double one = 0.0;
  double all = 0.0;
};

struct CpuIdentity {
  std::string name;  // as the processor calls itself
  int family = 0;
  int model = 0;
  int stepping = 0;
  std::vector<std::string> isas;  // supported kernel sets, "scalar" first
  std::size_t l2_bytes = 0;       // of one core; 0 when unknown
  std::size_t l3_bytes = 0;
};

// Rates a machine lacks the instructions for are 0. Compute in operations per second (a multiply
// and an add are two), bandwidth in bytes read per second.
struct MachineLimits {
  CpuIdentity cpu;
  int threads = 0;
  Rate fma_f32;
  Rate vnni_int8;
  Rate amx_int8;
  Rate amx_bf16;
  Rate read_l2;
  Rate read_l3;
  Rate read_dram;
};

CpuIdentity IdentifyCpu();
MachineLimits MeasureLimits(ThreadPool& pool);

}  // namespace tare::kernels
