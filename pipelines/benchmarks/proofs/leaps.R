# Solve one problem by leaps and bounds: Rscript leaps.R X Y m n k lam ANSWER, with X and Y as files of doubles.
arguments <- commandArgs(trailingOnly = TRUE)
m <- as.integer(arguments[3]); n <- as.integer(arguments[4]); k <- as.integer(arguments[5])
lam <- as.numeric(arguments[6])
X <- matrix(readBin(arguments[1], "double", m * n), m, n)
y <- readBin(arguments[2], "double", m)
suppressMessages(library(leaps))
start <- sum(proc.time()[c("user.self", "sys.self")])
if (lam > 0) {
  X <- rbind(X, sqrt(lam) * diag(n)); y <- c(y, rep(0, n))
}
found <- regsubsets(X, y, nvmax = k, intercept = FALSE, really.big = TRUE)
chosen <- which(summary(found)$which[k, ])
seconds <- sum(proc.time()[c("user.self", "sys.self")]) - start
indices <- paste(unname(chosen) - 1, collapse = ", ")
writeLines(sprintf('{"indices": [%s], "bound": null, "proved": true, "seconds": %.6f, "preparation": 0}', indices, seconds), arguments[7])
