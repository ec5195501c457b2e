// Building blocks of self-contained HTML pages: the page frame with its style.
#pragma once

#include <string>
#include <string_view>

namespace tare::econ {

// A whole page: no script, no outside resource; light and dark.
std::string HtmlPage(std::string_view title, std::string_view body);

}  // namespace tare::econ
