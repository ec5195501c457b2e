#include "base/html.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tare {
namespace {

TEST(EscapeHtml, LeavesNothingAReaderCouldRun) {
  EXPECT_EQ(EscapeHtml("<img src=x onerror='a(\"b\")'>&amp;"),
            "&lt;img src=x onerror=&#39;a(&quot;b&quot;)&#39;&gt;&amp;amp;");
  EXPECT_EQ(EscapeHtml(std::string("a\0b\x1b\x7f", 5)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(EscapeHtml("line\n\tindent \u4e2d"), "line\n\tindent \u4e2d");
}

RC_GTEST_PROP(EscapeHtml, NoMarkupSurvives, (const std::string& text)) {
  const std::string escaped = EscapeHtml(text);
  RC_ASSERT(escaped.find_first_of("<>\"'") == std::string::npos);
}

}  // namespace
}  // namespace tare
