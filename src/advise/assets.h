// Files built into the program (cmake/TareEmbed.cmake), so that it needs none of them at run time.
#pragma once

#include <string_view>

namespace tare::advise::assets {

extern const std::string_view kPrices;      // catalog/prices.yaml
extern const std::string_view kReportHtml;  // web/report/report.html, with {{slots}}
extern const std::string_view kReportCss;   // web/report/report.css
extern const std::string_view kTextEn;      // web/report/text.en.json: the report's words
extern const std::string_view kTextZh;

}  // namespace tare::advise::assets
