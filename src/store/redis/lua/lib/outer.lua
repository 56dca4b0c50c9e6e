
end
-- lib/outer: ends the function that lib/inner begins.
