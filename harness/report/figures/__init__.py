"""Drawing: each function takes plain data and a matplotlib figure. `style` holds colours, `gallery` the files."""
