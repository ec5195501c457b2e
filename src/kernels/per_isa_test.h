// A test that runs once with the kernels of every instruction set, and is skipped for those that
// the processor lacks.
//   class ThingPerIsa : public PerIsaTest {};
//   TEST_P(ThingPerIsa, Works) { ... }
//   INSTANTIATE_TEST_SUITE_P(Isa, ThingPerIsa, kEveryIsa, NameOfIsa);
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "kernels/test_data.h"

namespace tare::kernels {

class PerIsaTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!IsSupported(GetParam())) {
      GTEST_SKIP() << "this processor lacks " << ToString(GetParam());
    }
    isa_.emplace(GetParam());
    ASSERT_TRUE(isa_->ok());
  }

  std::optional<ScopedIsa> isa_;
  ThreadPool pool_{2};
};

inline const auto kEveryIsa = testing::Values(Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx);
inline std::string NameOfIsa(const testing::TestParamInfo<Isa>& param) {
  return ToString(param.param);
}

}  // namespace tare::kernels
