#include "base/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"

namespace tare {
namespace {

using ::testing::HasSubstr;

constexpr Nanos kLong = std::chrono::seconds(60);

TEST(ChildProcess, TellsHowItEndedAndKeepsWhatItWrote) {
  const auto log = std::filesystem::temp_directory_path() /
                   ("tare-child-" + std::to_string(::getpid()) + ".log");
  auto child = ChildProcess::Start({"sh", "-c", "echo out; echo err >&2; exit 3"}, log);
  ASSERT_TRUE(child) << child.error().message;
  ASSERT_TRUE(child->WaitForExit(kLong));
  EXPECT_EQ(child->HowItEnded(), "exit code 3");
  EXPECT_EQ(child->pid(), -1);
  EXPECT_TRUE(child->Stop(kLong)) << "what is gone needs no stopping";
  EXPECT_EQ(ReadFile(log).value(), "out\nerr\n");
  std::filesystem::remove(log);
}

TEST(ChildProcess, WhatIgnoresTermIsKilledWithAllItStarted) {
  // The child of the child would go on for an hour; it says its number first.
  const auto log = std::filesystem::temp_directory_path() /
                   ("tare-group-" + std::to_string(::getpid()) + ".log");
  auto child = ChildProcess::Start(
      {"sh", "-c", "trap '' TERM; sleep 3600 & echo $!; while :; do sleep 3600; done"}, log);
  ASSERT_TRUE(child) << child.error().message;
  const SteadyClock clock;
  Nanos patience = clock.Now() + kLong;
  while (ReadFile(log).value().find('\n') == std::string::npos && clock.Now() < patience) {
    ::usleep(1000);
  }
  ASSERT_NE(ReadFile(log).value().find('\n'), std::string::npos) << "it does not start";
  const int grandchild = std::stoi(ReadFile(log).value());
  EXPECT_EQ(::getpgid(grandchild), child->pid());
  EXPECT_FALSE(child->Stop(std::chrono::milliseconds(50)));
  EXPECT_EQ(child->HowItEnded(), "signal 9");
  // Nobody waits for it here: gone, or a zombie until init waits. A signal takes its moment.
  const auto runs = [&] {
    const auto state = ReadFile("/proc/" + std::to_string(grandchild) + "/stat");
    return state && state->find(") Z") == std::string::npos;
  };
  patience = clock.Now() + kLong;
  while (runs() && clock.Now() < patience) ::usleep(1000);
  EXPECT_FALSE(runs());
  std::filesystem::remove(log);
}

TEST(ChildProcess, WhatSomebodyElseWaitedForHasNoExitCode) {
  auto child = ChildProcess::Start({"sh", "-c", "exit 3"});
  ASSERT_TRUE(child) << child.error().message;
  ASSERT_EQ(::waitpid(child->pid(), nullptr, 0), child->pid());
  EXPECT_TRUE(child->WaitForExit(kLong));
  EXPECT_EQ(child->HowItEnded(), "an unknown end");
}

TEST(ChildProcess, WhatItLeavesInItsGroupEndsWithIt) {
  const auto log =
      std::filesystem::temp_directory_path() / ("tare-left-" + std::to_string(::getpid()) + ".log");
  auto child = ChildProcess::Start({"sh", "-c", "sleep 3600 & echo $!; exit 4"}, log);
  ASSERT_TRUE(child) << child.error().message;
  ASSERT_TRUE(child->WaitForExit(kLong));
  EXPECT_EQ(child->HowItEnded(), "exit code 4");
  const std::string stat = "/proc/" + std::to_string(std::stoi(ReadFile(log).value())) + "/stat";
  const auto runs = [&] {
    const auto state = ReadFile(stat);
    return state && state->find(") Z") == std::string::npos;
  };
  const SteadyClock clock;
  const Nanos patience = clock.Now() + kLong;
  while (runs() && clock.Now() < patience) ::usleep(1000);
  EXPECT_FALSE(runs());
  std::filesystem::remove(log);
}

TEST(ChildProcess, WhatCannotBeStartedIsNamed) {
  EXPECT_THAT(ChildProcess::Start({}).error().message, HasSubstr("empty"));
  EXPECT_THAT(ChildProcess::Start({"/no/such/program"}).error().message,
              HasSubstr("'/no/such/program'"));
  EXPECT_THAT(ChildProcess::Start({"true"}, "/no/such/folder/log").error().message,
              HasSubstr("/no/such/folder/log"));
}

}  // namespace
}  // namespace tare
