#include "gateway/load_shedder.h"

#include <gtest/gtest.h>

namespace tare::gateway {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LoadShedder, LetsInWhatIsAnsweredInTime) {
  // 120 a second within 800 ms: a burst of 96 more than one may come at once (0.8 x 120).
  LoadShedder shedder({120, milliseconds(800)});
  const Nanos t = seconds(1);
  int let_in = 0;
  while (!shedder.Admit(t)) ++let_in;
  EXPECT_EQ(let_in, 97);
  EXPECT_GT(*shedder.Admit(t), Nanos{});
  EXPECT_LE(*shedder.Admit(t), milliseconds(9)) << "one place comes free every 8.3 ms";
  EXPECT_FALSE(shedder.Admit(t + milliseconds(9)));
  EXPECT_TRUE(shedder.Admit(t + milliseconds(9)));
}

TEST(LoadShedder, KeepsThePaceAndNeverTurnsAwayWhatIsSlower) {
  LoadShedder shedder({100, milliseconds(100)});
  int let_in = 0;
  for (int ms = 0; ms < 10'000; ++ms) {  // 1,000 a second for ten seconds
    if (!shedder.Admit(seconds(1) + milliseconds(ms))) ++let_in;
  }
  EXPECT_NEAR(let_in, 1000 + 10, 2);
  LoadShedder idle({100, milliseconds(100)});
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(idle.Admit(seconds(1) + i * milliseconds(10)));
}

TEST(LoadShedder, WithoutAPaceEverythingGoes) {
  LoadShedder shedder({});
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(shedder.Admit(seconds(1)));
}

}  // namespace
}  // namespace tare::gateway
