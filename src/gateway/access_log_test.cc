#include "gateway/access_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/files.h"

namespace tare::gateway {
namespace {

using nlohmann::json;

TEST(AccessLog, ALineHoldsWhatIsKnown) {
  AccessRecord record;
  record.id = "r-1";
  record.peer = "127.0.0.1";
  record.method = "POST";
  record.path = "/v1/chat/completions";
  record.tenant = "search";
  record.key = "web";
  record.model = "chat \"x\"\n";
  record.answered_by = "big";
  record.status = 200;
  record.duration = std::chrono::microseconds(12345);
  record.first_token = std::chrono::milliseconds(5);
  record.stream = true;
  record.usage = {100, 20, 64};
  const std::string line = FormatAccess(record, {});
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "one line whatever the model is called";
  const json read = json::parse(line);
  EXPECT_EQ(read["time"], "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(read["id"], "r-1");
  EXPECT_EQ(read["status"], 200);
  EXPECT_EQ(read["duration_ms"], 12.345);
  EXPECT_EQ(read["ttft_ms"], 5.0);
  EXPECT_EQ(read["model"], "chat \"x\"\n");
  EXPECT_EQ(read["answered_by"], "big");
  EXPECT_EQ(read["tier"], "interactive");
  EXPECT_EQ(read["cached_tokens"], 64);
  EXPECT_FALSE(read.contains("error"));
}

TEST(AccessLog, WritesReopensAndLosesNothing) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tare-log-XXXXXX").string();
  const std::filesystem::path dir = ::mkdtemp(pattern.data());
  const std::string file = (dir / "access.log").string();
  AccessRecord record;
  record.path = "/health";
  record.status = 200;
  {
    auto log = AccessLog::Open(file);
    ASSERT_TRUE(log) << log.error().message;
    for (int i = 0; i < 500; ++i) (*log)->Write(record, {});
    std::filesystem::rename(file, file + ".1");
    ASSERT_TRUE((*log)->Reopen());
    for (int i = 0; i < 500; ++i) (*log)->Write(record, {});
    EXPECT_EQ((*log)->dropped(), 0u);
  }
  int lines = 0;
  for (const std::string& name : {file, file + ".1"}) {
    const auto text = ReadFile(name);
    if (!text) continue;  // the writer may have taken all before or after the move
    std::istringstream in(*text);
    for (std::string line; std::getline(in, line); ++lines) EXPECT_TRUE(json::accept(line));
  }
  EXPECT_EQ(lines, 1000);
  std::filesystem::remove_all(dir);
  EXPECT_FALSE(AccessLog::Open((dir / "gone" / "access.log").string()));
}

}  // namespace
}  // namespace tare::gateway
