#include "kernels/limits.h"

#include <gtest/gtest.h>

#include "kernels/isa.h"
#include "kernels/probes.h"

namespace tare::kernels {
namespace {

TEST(Limits, NamesTheProcessorAndItsKernelSets) {
  const CpuIdentity cpu = IdentifyCpu();
  EXPECT_FALSE(cpu.name.empty());
  ASSERT_EQ(cpu.isas.size(), SupportedIsas().size());
  EXPECT_EQ(cpu.isas.front(), "scalar");
}

TEST(Limits, ProbesDoTheWorkTheyReport) {
  alignas(64) const std::uint8_t data[1024] = {1, 2, 3};
  EXPECT_EQ(ReadScalar(data, sizeof data), 0x030201u);
#if defined(__x86_64__)
  if (IsSupported(Isa::kAvx2)) {
    EXPECT_EQ(ReadAvx2(data, sizeof data), 0x030201u);
    EXPECT_EQ(ProbeFmaAvx2(10), 10 * 12 * 8 * 2);
  }
  if (IsSupported(Isa::kAvx512)) {
    EXPECT_EQ(ReadAvx512(data, sizeof data), 0x030201u);
    EXPECT_EQ(ProbeFmaAvx512(10), 10 * 16 * 16 * 2);
    EXPECT_EQ(ProbeVnniAvx512(10), 10 * 16 * 64 * 2);
  }
  if (IsSupported(Isa::kAmx)) {
    EXPECT_EQ(ProbeInt8Amx(10), 10 * 4 * 16 * 16 * 64 * 2);
    EXPECT_EQ(ProbeBf16Amx(10), 10 * 4 * 16 * 16 * 32 * 2);
  }
#endif
}

}  // namespace
}  // namespace tare::kernels
